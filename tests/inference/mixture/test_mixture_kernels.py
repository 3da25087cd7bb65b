"""Jumps of the RBF mixture: their ratios are those of the graph, their chains the exact answer."""

import numba
import numpy as np
import pytensor
import pytest
from scipy import stats
from scipy.special import logsumexp

from ardvark.inference.mixture.background import Evidence, gaussian_evidence, mixture_evidence
from ardvark.inference.mixture.chains import Scale, joined, make_problem, run_chains, rung, start
from ardvark.inference.mixture.enumerate import enumerate_mixture
from ardvark.inference.mixture.kernels import (
    State,
    allocate,
    data_ratio,
    draw_rate,
    log_rows,
    prior_ratio,
    propose,
    rate_proposal,
    rows_of,
)
from ardvark.inference.mixture.leaps import (
    add_up,
    draw_allocations,
    draw_subset,
    leap_ratio,
    log_library,
    make_library,
    weigh,
)
from ardvark.inference.reversible_jump import Plan
from ardvark.models.card import card_of
from ardvark.models.mixture import rbf_mixture
from ardvark.models.subset import log_subset_prior

A, G, RESOLUTION = 2.0, 0.2, 0.1
CODE = np.array([4, 2, 1])  # subsets of three inputs as numbers, in the order of the enumeration


# --- the graph as judge ------------------------------------------------------------------------


class Judge:
    """A graph with some unlabelled rows, its logp at natural values, and the sampler's problem."""

    def __init__(self):
        rng = np.random.default_rng(3)
        self.X = rng.normal(size=(12, 4)) * [1, 5, 0.1, 1] + [0, 3, 0, -2]
        t = np.array([0, 1, 2] * 4, dtype=float)
        t[[1, 7]] = np.nan
        self.model = rbf_mixture(self.X, t, n_kernels=3, expected_inputs=1.7)
        self.prior = card_of(self.model).prior
        self.scale = Scale(self.prior.centre, self.prior.spread)
        self.label = np.where(np.isnan(t), -1, t).astype(int)
        with pytensor.config.change_flags(cxx=""):
            self.logp = self.model.compile_logp(jacobian=False, mode="FAST_COMPILE")
        self.log_p0 = rng.normal(size=4) * 5
        self.problem = make_problem(
            self.scale.to_z(self.X), self.label, log_subset_prior(4, 1.7), A, G,
            self.prior.h * self.prior.spread**2, RESOLUTION,
            Evidence(self.log_p0, np.zeros(4)),
        )  # fmt: skip
        shape = (4, 3)
        self.background = {
            "background_mean": self.prior.centre[:, None] + rng.normal(size=shape),
            "background_precision": rng.gamma(2.0, size=shape),
            "background_rate": np.square(self.prior.spread),
            "background_probability": rng.dirichlet(np.ones(3), size=4),
        }

    def state(self, rng) -> State:
        """Any state: allocations that fit nothing, coefficients of all inputs."""
        state = rung(start(rng, self.problem, 3, 3, 1, 1), 0)
        state.on[:] = rng.random(4) < rng.random()
        state.d[:] = rng.integers(3, size=12)
        state.c[:] = np.where(self.label < 0, rng.integers(3, size=12), self.label)
        for j in range(4):
            propose(rng, self.problem, state, j)
        return state

    def graph(self, s: State) -> float:
        """The graph's log density in its own units, no Jacobians."""
        spread = self.prior.spread[:, None]
        natural = self.background | {
            "included": s.on.astype(int),
            "class_probability": s.P,
            "kernel_probability": s.w,
            "kernel_mean": self.prior.centre[:, None] + spread * s.mean,
            "kernel_precision": s.tau / spread**2,
            "kernel_rate": s.beta * self.prior.spread**2,
        }
        floor = (self.prior.resolution * self.prior.spread) ** 2
        point = {}
        for rv in self.model.free_RVs:
            value, x = self.model.rvs_to_values[rv], np.asarray(natural[rv.name])
            if value.name.endswith("_log__"):
                x = np.log(x)
            elif value.name.endswith("_interval__"):
                x = np.log(x - floor)
            elif value.name.endswith("_simplex__"):
                x = np.log(x[..., :-1]) - np.log(x).mean(axis=-1, keepdims=True)
            point[value.name] = x
        return float(self.logp(point))

    def log_allocations(self, s: State) -> float:
        """log p(c, d | x, the rest): what the graph sums out and a jump holds."""
        kernels = np.zeros((12, 3))
        for j in np.flatnonzero(s.on):
            kernels += stats.norm.logpdf(self.problem.z[j][:, None], s.mean[j], s.tau[j] ** -0.5)
        joint = np.log(s.P)[:, None] + np.log(s.w) + kernels[:, None, :]  # (row, class, kernel)
        total = 0.0
        for n in range(12):
            whole = joint[n] if self.label[n] < 0 else joint[n, self.label[n]]
            total += joint[n, s.c[n], s.d[n]] - logsumexp(whole)
        return float(total)

    def background_gap(self, j: int) -> float:
        """The graph's background of input j less the evidence that stands for it in a jump."""
        b = {name: value[j] for name, value in self.background.items()}
        density = stats.norm.logpdf(
            self.X[:, [j]], b["background_mean"], b["background_precision"] ** -0.5
        )
        in_graph = logsumexp(density + np.log(b["background_probability"]), axis=1).sum()
        return float(in_graph - (self.log_p0[j] - 12 * np.log(self.prior.spread[j])))

    def log_prior_of(self, s: State, j: int) -> float:
        """The graph's prior of the coefficients of input j in the sampler's units."""
        law = stats.gamma(G, scale=1 / self.problem.h[j])
        total = law.logpdf(s.beta[j]) - law.logsf(self.problem.floor)
        total += stats.gamma.logpdf(s.tau[j], A, scale=1 / s.beta[j]).sum()
        return float(total + stats.norm.logpdf(s.mean[j]).sum())

    def prior_over_proposal(self, s: State, j: int) -> float:
        """log p - log q of the coefficients of input j, m included, by scipy."""
        p = self.problem
        n, centre, scatter = rows_of(p, s, j)
        u, scale, _ = rate_proposal(n, scatter, A, G, p.h[j], p.floor)
        beta, tau, mean = s.beta[j], s.tau[j], s.mean[j]
        low = np.log(p.floor)
        log_q = stats.t.logpdf(np.log(beta), 4, u, scale) - stats.t.logsf(low, 4, u, scale)
        log_q -= np.log(beta)  # q is a density of log β, the prior one of β
        power, rate = A + np.maximum(n - 1, 0) / 2, beta + scatter / 2
        log_q += stats.gamma.logpdf(tau, power, scale=1 / rate).sum()
        at, sd = n * tau * centre / (1 + n * tau), (1 + n * tau) ** -0.5
        log_q += stats.norm.logpdf(mean, at, sd).sum()
        law = stats.gamma(G, scale=1 / p.h[j])
        log_p = law.logpdf(beta) - law.logsf(p.floor)
        log_p += stats.gamma.logpdf(tau, A, scale=1 / beta).sum() + stats.norm.logpdf(mean).sum()
        return float(log_p - log_q)


@pytest.fixture(scope="module")
def judge():
    return Judge()


def a_move(rng, on):
    """A possible (new, old), -1 is nobody."""
    inside, outside = np.flatnonzero(on), np.flatnonzero(~on)
    kinds = []
    if len(outside):
        kinds.append((rng.choice(outside), -1))
    if len(inside):
        kinds.append((-1, rng.choice(inside)))
    if len(inside) and len(outside):
        kinds.append((rng.choice(outside), rng.choice(inside)))
    return tuple(int(j) for j in kinds[rng.integers(len(kinds))])


def after(s: State, new: int, old: int) -> State:
    on = s.on.copy()
    if new >= 0:
        on[new] = True
    if old >= 0:
        on[old] = False
    return s._replace(on=on)


def log_choice(s: State, new: int, old: int) -> float:
    """log of choosing the way back over choosing the way there."""
    inside, outside = s.on.sum(), (~s.on).sum()
    if old < 0:
        return float(np.log(outside) - np.log(inside + 1))
    if new < 0:
        return float(np.log(inside) - np.log(outside + 1))
    return 0.0


STATES = pytest.mark.parametrize("states", [150, pytest.param(10_000, marks=pytest.mark.validate)])


@STATES
def test_ratio_of_every_move_is_that_of_the_graph_and_moves_can_be_undone(judge, states):
    rng = np.random.default_rng(11)
    kinds = set()
    for _ in range(states):
        here = judge.state(rng)
        new, old = a_move(rng, here.on)
        kinds.add((new >= 0, old >= 0))
        there = after(here, new, old)
        common = judge.graph(there) - judge.graph(here) + log_choice(here, new, old)
        common += judge.background_gap(new) if new >= 0 else 0.0
        common -= judge.background_gap(old) if old >= 0 else 0.0
        # births from the prior, allocations summed out
        rows = np.empty((3, 12))
        ratio = prior_ratio(judge.problem, here, new, old, rows)
        assert ratio == pytest.approx(common, rel=1e-9, abs=1e-8)
        back = prior_ratio(judge.problem, there, old, new, rows)
        assert ratio + back == pytest.approx(0, abs=1e-9 * max(1, abs(ratio)))
        # births from the data, allocations held
        ratio = data_ratio(judge.problem, here, new, old)
        expected = common + judge.log_allocations(there) - judge.log_allocations(here)
        expected += judge.prior_over_proposal(here, new) if new >= 0 else 0.0
        expected -= judge.prior_over_proposal(here, old) if old >= 0 else 0.0
        assert ratio == pytest.approx(expected, rel=1e-9, abs=1e-8)
        back = data_ratio(judge.problem, there, old, new)
        assert ratio + back == pytest.approx(0, abs=1e-9 * max(1, abs(ratio)))
        again = after(there, old, new)
        assert all(np.array_equal(x, y) for x, y in zip(again, here, strict=True))
        if new >= 0 and old < 0:  # the same check without the Jacobian of log β must fail
            assert abs(ratio - expected + np.log(here.beta[new])) > 1e-6
    assert kinds == {(True, False), (False, True), (True, True)}


# --- leaps -------------------------------------------------------------------------------------


def library_of(judge, rng, number=5):
    states = [State(*(part[None] for part in judge.state(rng))) for _ in range(number)]
    return make_library(judge.problem, joined(states))


def log_dirichlets(judge, s: State) -> float:
    """log p(P, w | c, d), from which a leap draws them."""
    total = stats.dirichlet.logpdf(s.P, 1.0 + np.bincount(s.c, minlength=3))
    for k in range(3):
        counts = np.bincount(s.d[s.c == k], minlength=3)
        total += stats.dirichlet.logpdf(s.w[k], 1.0 + counts)
    return float(total)


def log_subset_given(judge, s: State, odds) -> float:
    """log P(I | d, β, τ) by the sum over all sixteen subsets."""
    sets = np.array(list(np.ndindex(2, 2, 2, 2)), bool)
    terms = judge.problem.log_prior[sets.sum(axis=1)] + sets @ odds
    own = judge.problem.log_prior[s.on.sum()] + odds[s.on].sum()
    return float(own - logsumexp(terms))


@STATES
def test_ratio_of_a_leap_is_that_of_the_graph_and_leaps_can_be_undone(judge, states):
    rng = np.random.default_rng(12)
    p = judge.problem
    library = library_of(judge, rng)
    table, odds = np.empty((2, 5, 5)), np.empty((2, 4))
    for _ in range(states):
        here, there = judge.state(rng), judge.state(rng)
        ratio = leap_ratio(p, library, here, there, table, odds)
        back = leap_ratio(p, library, there, here, np.empty((2, 5, 5)), np.empty((2, 4)))
        assert ratio + back == pytest.approx(0, abs=1e-9 * max(1, abs(ratio)))
        expected = 0.0
        for sign, s, own in ((1, there, odds[1]), (-1, here, odds[0])):
            value = judge.graph(s) + judge.log_allocations(s)
            value += sum(judge.background_gap(j) for j in np.flatnonzero(s.on))
            value -= log_library(p, library, s) + log_dirichlets(judge, s)
            value -= log_subset_given(judge, s, own)
            # prior over proposal of the included; excluded inputs: q, and the graph has the prior
            value += sum(judge.prior_over_proposal(s, j) for j in np.flatnonzero(s.on))
            value -= sum(judge.log_prior_of(s, j) for j in range(4))
            expected += sign * value
        assert ratio == pytest.approx(expected, rel=1e-9, abs=1e-8)
        # the same check with kernels of one name only, or without the counts of rows, must fail
        assert abs(ratio - expected + log_dirichlets(judge, there)) > 1e-6


def test_a_library_is_a_density_of_allocations_whatever_the_names(judge):
    rng = np.random.default_rng(13)
    p = judge.problem
    few = p._replace(z=np.ascontiguousarray(p.z[:, :4]), label=p.label[:4])  # one unlabelled
    states = [judge.state(rng) for _ in range(3)]
    cut = [State(*(part[None] for part in s._replace(c=s.c[:4], d=s.d[:4]))) for s in states]
    library = make_library(few, joined(cut))
    s = rung(cut[0], 0)
    total, seen = 0.0, {}
    for d in np.ndindex(3, 3, 3, 3):
        s.d[:] = d
        for k in range(3):
            s.c[:] = np.where(few.label < 0, k, few.label)
            seen[(*d, k)] = np.exp(log_library(few, library, s))
            total += seen[(*d, k)]
        name = rng.permutation(3)
        assert seen[(*d, 0)] == pytest.approx(seen.get((*name[list(d)], 0), seen[(*d, 0)]))
    assert total == pytest.approx(1, abs=1e-9)
    draws, counted = 4000, dict.fromkeys(seen, 0)
    for _ in range(draws):
        draw_allocations(rng, few, library, s)
        counted[(*s.d, s.c[few.label < 0][0])] += 1
    gap = sum((counted[key] - draws * q) ** 2 / (draws * q) for key, q in seen.items())
    assert stats.chi2.sf(gap, len(seen) - 1) > 1e-3


def test_a_whole_subset_is_drawn_from_its_conditional(judge):
    rng = np.random.default_rng(14)
    s = judge.state(rng)
    table, odds = np.empty((5, 5)), np.empty(4)
    weigh(judge.problem, s, odds)
    odds -= odds.mean()
    odds /= 10  # so that all subsets have a chance
    add_up(odds, table)
    counted = np.zeros((2, 2, 2, 2))
    for _ in range(4000):
        draw_subset(rng, judge.problem, s, odds, table)
        counted[tuple(s.on.astype(int))] += 1
    chance = np.array(
        [
            np.exp(log_subset_given(judge, s._replace(on=np.array(key, bool)), odds))
            for key in np.ndindex(counted.shape)
        ]
    )
    assert stats.chisquare(counted.ravel(), 4000 * chance).pvalue > 1e-3


def test_classes_of_unlabelled_rows_are_drawn_with_the_kernel_summed_out(judge):
    """Given the old kernel the formula for a class would be another: c first, then d given c."""
    rng = np.random.default_rng(31)
    p, s = judge.problem, judge.state(rng)
    s.on[:] = [True, False, True, False]
    rows = np.empty((3, 12))
    log_rows(p, s, rows)
    unlabelled = np.flatnonzero(p.label < 0)
    counted, draws = np.zeros((len(unlabelled), 3, 3)), 3000
    for _ in range(draws):
        allocate(rng, p.label, s, rows)
        counted[np.arange(len(unlabelled)), s.c[unlabelled], s.d[unlabelled]] += 1
    joint = s.P[:, None] * s.w * np.exp(rows - rows.max(axis=0)).T[unlabelled][:, None, :]
    exact = joint / joint.sum(axis=(1, 2), keepdims=True)
    error = np.sqrt(exact * (1 - exact) / draws)
    assert np.all(np.abs(counted / draws - exact) < 4.5 * error + 1e-3)


def test_a_tempered_ratio_counts_rows_by_the_power(judge):
    """At power 1/2 two copies of the data give the ratio that one gives at power 1."""
    rng = np.random.default_rng(5)
    p = judge.problem
    twice = p._replace(
        z=np.repeat(p.z, 2, axis=1), label=np.repeat(p.label, 2), power=0.5, log_p0=2 * p.log_p0
    )
    for _ in range(20):
        s = judge.state(rng)
        new, old = a_move(rng, s.on)
        doubled = s._replace(c=np.repeat(s.c, 2), d=np.repeat(s.d, 2))
        assert data_ratio(twice, doubled, new, old) == pytest.approx(
            data_ratio(p, s, new, old), rel=1e-9, abs=1e-9
        )


@pytest.mark.parametrize(
    ("shape", "rate", "floor"),
    [(0.2, 10, 0.01), (12.2, 3.0, 0.5), (12.2, 300, 0.2), (0.2, 30, 1), (4.2, 3.2001, 1.0)],
)
def test_rates_above_the_floor_have_their_distribution(shape, rate, floor):
    rng = np.random.default_rng(2)
    draws = np.array([draw_rate(rng, shape, rate, floor) for _ in range(4000)])
    law = stats.gamma(shape, scale=1 / rate)
    assert draws.min() > floor
    assert stats.kstest(law.sf(draws) / law.sf(floor), "uniform").pvalue > 1e-3


# --- the exact answer --------------------------------------------------------------------------


class Tiny:
    """Three inputs, thirteen rows, two classes, two kernels: everything can be summed."""

    def __init__(self, unit=1.0, n_background=2):
        rng = np.random.default_rng(7)
        t = np.repeat([0, 1], [6, 7])
        X = rng.normal(size=(13, 3))
        X[:, 0] += 1.5 * t
        X[:, 2] += 0.8 * X[:, 0]
        X[:, 1] *= unit
        centre, spread = (X.max(axis=0) + X.min(axis=0)) / 2, np.ptp(X, axis=0)
        self.spread, self.n_background = spread, n_background
        self.z, self.h = Scale(centre, spread).to_z(X), np.full(3, 10.0)
        nothing = Evidence(np.zeros(3), np.zeros(3))
        log_prior = log_subset_prior(3, 1.0)
        p = make_problem(self.z, t, log_prior, A, G, self.h, RESOLUTION, nothing)
        self.exact = enumerate_mixture(p, 2, 2, n_background)
        self.problem = p._replace(log_p0=self.exact.background.value)

    def run(self, problem, sweeps=30000, seed=4, **options):
        plan = Plan(500, 4, sweeps // 4)
        chains = run_chains(problem, 2, 2, plan, jumps=3, seed=seed, **options)
        visited = np.stack([chain.visited for chain in chains])
        batches = np.array_split(visited @ CODE, 10, axis=1)
        share = [np.bincount(w, minlength=8) / len(w) for part in batches for w in part]
        return np.mean(share, axis=0), np.std(share, axis=0, ddof=1) / np.sqrt(len(share))


@pytest.fixture(scope="module")
def tiny():
    return Tiny()


def test_enumeration_of_one_kernel_is_the_integral(tiny):
    one = Tiny(n_background=1)
    closed = gaussian_evidence(tiny.z, A, G, tiny.h, RESOLUTION**2)
    np.testing.assert_allclose(one.exact.background.value, closed.value, atol=1e-6)
    assert tiny.exact.probability.sum() == pytest.approx(1)


def test_all_problems_have_one_type(tiny):
    """Else the kernels are compiled anew: the evidences are a column for two kernels or more."""
    p = tiny.problem
    value = tiny.exact.background.value
    for evidence in (value, np.stack([value, value], axis=1)[:, 0]):
        made = make_problem(
            tiny.z, p.label, p.log_prior, A, G, tiny.h, RESOLUTION, Evidence(evidence, 0 * value)
        )
        assert numba.typeof(made) == numba.typeof(p)


def test_evidence_of_the_background_is_that_of_the_enumeration(tiny):
    found = mixture_evidence(tiny.z, 2, A, G, tiny.h, RESOLUTION**2, seed=5, draws=1000)
    assert np.all(found.error < 0.03)
    assert np.all(np.abs(found.value - tiny.exact.background.value) < 4 * found.error + 0.01)


@pytest.mark.parametrize(
    "options", [{}, {"scouts": 0}, {"rungs": 3, "scouts": 1}], ids=["leaps", "plain", "ladder"]
)
def test_chains_visit_subsets_as_often_as_the_enumeration_says(tiny, options):
    share, error = tiny.run(tiny.problem, **options)
    assert np.all(np.abs(share - tiny.exact.probability) < 4 * error)
    assert np.abs(share - tiny.exact.probability).sum() / 2 < 0.02


def test_births_from_the_prior_give_the_same_answer(tiny):
    share, error = tiny.run(tiny.problem, from_data=False)
    assert np.all(np.abs(share - tiny.exact.probability) < 4 * error)


def test_planted_faults_are_caught(tiny):
    """No prior of the subset, and the ratio as printed, which has no background at all."""
    flat = tiny.problem._replace(log_prior=np.zeros(4))
    as_printed = tiny.problem._replace(log_p0=13 * np.log(tiny.spread))
    for fault in (flat, as_printed):
        share, error = tiny.run(fault, sweeps=8000)
        assert np.any(np.abs(share - tiny.exact.probability) > 6 * error + 0.01)


def test_units_do_not_matter_but_do_as_printed(tiny):
    other = Tiny(unit=1 / 1000)
    np.testing.assert_allclose(other.exact.probability, tiny.exact.probability, atol=1e-10)
    share, error = other.run(other.problem, sweeps=20000)
    assert np.all(np.abs(share - tiny.exact.probability) < 4 * error)
    inclusion = []
    for case in (tiny, other):
        printed = case.problem._replace(log_p0=13 * np.log(case.spread))
        inclusion.append(case.run(printed, sweeps=4000)[0] @ (np.arange(8) // 2 % 2))
    assert inclusion[0] < 0.01
    assert inclusion[1] > 0.99


def test_same_seed_same_chains(tiny):
    first, second = (tiny.run(tiny.problem, sweeps=400, seed=9)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_dirichlet_multinomial_of_allocations_sums_to_one(tiny):
    assert np.exp(logsumexp(tiny.exact.log_labels)) == pytest.approx(1)
