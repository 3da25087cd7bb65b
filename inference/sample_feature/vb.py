"""The variational relevance sample-feature machine: sparse in samples and in features at once.

    eta_n = w' Phi_n lam          Phi_n[i, j] = K(x_nj, x_ij), 1 in row 0 and in column 0
    q     = q(w) q(lam) q(alpha_w) q(alpha_lam) q(noise)

Mirzaei, Mohsenzadeh & Sheikhzadeh 2017 (Mir17), and what it leaves open:

| paper                                     | here                                                |
|-------------------------------------------|-----------------------------------------------------|
| mu_w, Sigma_w (14), (24), (25)            | `Ascent.update_w`                                   |
| mu_lambda, Sigma_lambda (15), (26), (27)  | `Ascent.update_lam`                                 |
| q(alpha_w), q(alpha_lambda) (16), (17)    | `conjugate`, index from 0: constants have one too   |
| q(beta) (18), zeta (30)                   | `Rows.tightened`                                    |
| E(Phi_lambda' Phi_lambda)                 | `Moments.by_w` in `moments.py`             |
| E(Phi_w' Phi_w), one for each row         | `Moments.by_lam`                                    |
| Algorithm 1, pruning                      | `Ascent.prune`, after a warm-up                     |

Scale: eta does not change under (w, lam) -> (c w, lam / c), only the hyperpriors see it, so plain
ascent creeps along a ridge. `rescale` goes to its top, which is exact: with s = c² the bound
changes by -k ln s - b (A/s + B s) + const, k = a (#w - #lam), A = sum E alpha_w,
B = sum E alpha_lam, for hyperpriors Gamma(a, b) on both sides.

Pruning is outside the bound: the ELBO after it is that of the smaller model.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.sample_feature.moments import moments_of
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.vb.blocks import (
    Gamma,
    GaussianBlock,
    Known,
    Precisions,
    conjugate,
    gaussian_block,
    weights_term,
)
from ardvark.inference.vb.climb import Climber
from ardvark.inference.vb.rows import Rows
from ardvark.inference.vb.vb import Pruning

__all__ = ["Ascent", "State", "Watch", "elbo", "eta_moments", "readmitted"]

_INNER = 3  # updates of lam, its precisions and the noise for one of w: they cost next to nothing

type Watch = Callable[[str, "State"], None]


class State(NamedTuple):
    """Every factor of q, and what it is about."""

    w: GaussianBlock
    lam: GaussianBlock
    alpha_w: Precisions
    alpha_lam: Precisions
    rows: Rows
    samples: Index  # indices of w that are in the model, 0 = the constant
    features: Index  # of lam


def eta_moments(basis: Any, state: State) -> tuple[Array, Array]:
    """E eta and E eta² at the rows of a basis."""
    return Ascent(basis, state, None).eta_moments()


def elbo(basis: Any, state: State, prior: Gamma) -> float:
    """The bound, every constant and hyperprior in it, from the factors of q alone."""
    mean, second = eta_moments(basis, state)
    return state.rows.parabola.value(mean, second) + _without_rows(state, prior)


def _without_rows(state: State, prior: Gamma) -> float:
    total = state.rows.minus_kl
    for q, alpha in ((state.w, state.alpha_w), (state.lam, state.alpha_lam)):
        total += weights_term(alpha.mean_log, alpha.mean, q.second, q.half_log_det)
        total += alpha.minus_kl(prior)
    return total


class Ascent(Climber):
    """Coordinate ascent from one start; `state` is carried, the moments of Phi follow it."""

    state: State

    def __init__(
        self,
        basis: Any,
        state: State,
        prior: Gamma | None,
        memory: float = 256.0,
        watch: Watch | None = None,
    ) -> None:
        self.basis, self.state, self.watch = basis, state, watch
        self.prior = Gamma(np.array(1.0), np.array(1.0)) if prior is None else prior
        self.memory = memory
        self._look_again()

    def _look_again(self) -> None:
        """Choose the cheaper computation of the moments of Phi for what is in the model."""
        self.moments = moments_of(self.basis, self.state.samples, self.state.features, self.memory)
        self.seen = self.moments.by_lam(self.state.w)

    # Blocks -------------------------------------------------------------------------------------

    def _now(self, name: str, **changes: Any) -> None:
        self.state = self.state._replace(**changes)
        self.tell(name)

    def update_w(self) -> None:
        """q(w)."""
        precision, shift = self.moments.by_w(self.state.lam, self.state.rows.parabola)
        precision.flat[:: len(shift) + 1] += self.state.alpha_w.mean
        self._now("w", w=gaussian_block(precision, shift))  # Mir17 (14), (24), (25)
        self.seen = self.moments.by_lam(self.state.w)

    def update_lam(self) -> None:
        """q(lam)."""
        precision, shift = self.seen.natural(self.state.rows.parabola)
        precision.flat[:: len(shift) + 1] += self.state.alpha_lam.mean
        self._now("lam", lam=gaussian_block(precision, shift))  # Mir17 (15), (26), (27)

    def update_precisions(self, side: str) -> None:
        """q(alpha_w) or q(alpha_lam), unless they are given."""
        q, name = getattr(self.state, side), f"alpha_{side}"
        if isinstance(getattr(self.state, name), Gamma):
            self._now(name, **{name: conjugate(self.prior, q.second)})  # Mir17 (16), (17)

    def update_rows(self) -> None:
        """The noise, or the bound of each row."""
        self._now("rows", rows=self.state.rows.tightened(*self.eta_moments()))  # Mir17 (18), (30)

    def eta_moments(self) -> tuple[Array, Array]:
        """E eta and E eta² of each row."""
        return self.seen.eta(self.state.lam)

    def rescale(self) -> None:
        """Go to the top of the ridge (c w, lam / c)."""
        state = self.state
        if not (isinstance(state.alpha_w, Gamma) and isinstance(state.alpha_lam, Gamma)):
            return
        a, b = float(np.mean(self.prior.shape)), float(np.mean(self.prior.rate))
        k = a * (len(state.samples) - len(state.features))
        on_w, on_lam = b * state.alpha_w.mean.sum(), b * state.alpha_lam.mean.sum()
        root = np.sqrt(k**2 + 4.0 * on_w * on_lam)
        s = (root - k) / (2.0 * on_lam) if k <= 0 else 2.0 * on_w / (root + k)
        c = float(np.sqrt(s))
        self.seen = self.seen.scaled(c)
        self._now(
            "scale",
            w=state.w.scaled(c),
            lam=state.lam.scaled(1.0 / c),
            alpha_w=Gamma(state.alpha_w.shape, state.alpha_w.rate * s),
            alpha_lam=Gamma(state.alpha_lam.shape, state.alpha_lam.rate / s),
        )

    def sweep(self) -> float:
        """Every block once, those that are cheap more often; gives the ELBO."""
        self.update_w()
        self.update_precisions("w")
        for _ in range(_INNER):
            self.update_lam()
            self.update_precisions("lam")
            self.update_rows()
        self.rescale()
        return self.bound()

    def place(self) -> Array:
        """The coordinates of a leap: what a sweep starts from."""
        pair = self.state.alpha_w, self.state.alpha_lam
        rates = [np.log(q.rate) for q in pair if isinstance(q, Gamma)]
        return np.concatenate([*rates, self.state.lam.mean])

    def go_to(self, place: Array) -> None:
        """Take the coordinates of a leap."""
        for name in ("alpha_w", "alpha_lam"):
            q = getattr(self.state, name)
            if isinstance(q, Gamma):
                mine, place = np.split(place, [len(q.rate)])
                changes: dict[str, Any] = {name: Gamma(q.shape, np.exp(mine))}
                self.state = self.state._replace(**changes)
        self.state = self.state._replace(lam=self.state.lam._replace(mean=place))

    def bound(self) -> float:
        """The ELBO, from the moments at hand."""
        parabola = self.state.rows.parabola
        return parabola.value(*self.eta_moments()) + _without_rows(self.state, self.prior)

    def whole_bound(self) -> float:
        """The ELBO of the whole model, with what was pruned taken in again, at zero.

        Ends with other weights in the model are ends of other models: under the flat hyperprior
        each weight less is worth -log b nats, so their own ELBOs say nothing but which is
        smaller. A weight that the data do not want has q(w_j) = N(0, v_j), where v_j and its Gamma
        have a closed form given the precision s_j of the data; this q is one of the whole model.
        """
        state, (_, n_features, n_samples) = self.state, self.basis.shape
        pruned = len(state.samples) < n_samples or len(state.features) < n_features
        if not pruned or isinstance(state.alpha_w, Known) or isinstance(state.alpha_lam, Known):
            return self.bound()
        on_w, on_lam = self._data_precisions()
        sides = []
        for q, alpha, kept, s in (
            (state.w, state.alpha_w, state.samples, on_w),
            (state.lam, state.alpha_lam, state.features, on_lam),
        ):
            a, b = self.prior
            half = a + b * s
            variance = 2.0 * b / (half + np.sqrt(half**2 + 2.0 * b * s))
            sides.append(readmitted(q, alpha, kept, variance, conjugate(self.prior, variance)))
        (w, of_w), (lam, of_lam) = sides
        whole = State(w, lam, of_w, of_lam, state.rows, np.arange(n_samples), np.arange(n_features))
        return Ascent(self.basis, whole, self.prior, self.memory).bound()

    def _data_precisions(self) -> tuple[Array, Array]:
        """What the data say of each weight by itself, pruned ones too: sum_n c_n E(column²)."""
        state, precision = self.state, self.state.rows.parabola.precision
        rows, n_features, n_samples = self.basis.shape
        outer_w = np.column_stack([state.w.root, state.w.mean])
        outer_lam = np.column_stack([state.lam.root, state.lam.mean]).T
        on_w, on_lam = np.zeros(n_samples), np.zeros(n_features)
        step = max(1, int(self.memory * 2**20 / 64 // (n_features * n_samples)))
        for start in range(0, rows, step):
            chunk = slice(start, start + step)
            c = precision[chunk]
            seen = outer_lam @ self.basis.block(chunk, state.features, np.arange(n_samples))
            on_w += np.tensordot(c, np.sum(seen**2, axis=1), 1)
            seen = self.basis.block(chunk, np.arange(n_features), state.samples) @ outer_w
            on_lam += np.tensordot(c, np.sum(seen**2, axis=2), 1)
        return on_w, on_lam

    def prune(self, pruning: Pruning) -> bool:
        """Drop what is small beside the largest of its side; tell whether anything went.

        The bound that follows is that of a smaller model and may be lower: what is left has not
        yet taken over what the small ones did.
        """
        keep_w = _share(self.state.w, pruning) >= pruning.threshold
        keep_lam = _share(self.state.lam, pruning) >= pruning.threshold
        if keep_w.all() and keep_lam.all():
            return False
        state = self.state
        self.state = State(
            state.w.kept(keep_w),
            state.lam.kept(keep_lam),
            state.alpha_w.kept(keep_w),
            state.alpha_lam.kept(keep_lam),
            state.rows,
            state.samples[keep_w],
            state.features[keep_lam],
        )
        self._look_again()
        return True


def _share(q: GaussianBlock, pruning: Pruning) -> Array:
    """Size of each weight as a share of the largest; of zeros none is smaller than another."""
    size = np.sqrt(q.second) if pruning.by == "size" else np.abs(q.mean)
    largest = float(size.max())
    return np.asarray(size / largest if largest > 0 else np.ones_like(size))


def readmitted(
    q: GaussianBlock, alpha: Precisions, kept: Index, variance: Array, prior: Gamma
) -> tuple[GaussianBlock, Precisions]:
    """The same law beside newcomers N(0, variance), independent, with the precisions of `prior`."""
    size = len(variance)
    mean, root = np.zeros(size), np.diag(np.sqrt(variance))
    mean[kept] = q.mean
    root[np.ix_(kept, kept)] = q.root  # upper triangular still: `kept` is in order
    new = np.ones(size, bool)
    new[kept] = False
    half_log_det = q.half_log_det + 0.5 * float(np.log(variance[new]).sum())
    shape, rate = (np.broadcast_to(x, size).copy() for x in prior)
    if isinstance(alpha, Gamma):
        shape[kept], rate[kept] = alpha.shape, alpha.rate
    return GaussianBlock(mean, root, half_log_det), Gamma(shape, rate)
