"""The mixture under P(t | x) in machine code: density, gradient, jumps, chains, planted faults."""

import numpy as np
import pytensor
import pytest
from scipy import stats
from scipy.special import logsumexp, softmax

import ardvark as av
from ardvark.inference.mixture.background import Evidence
from ardvark.inference.mixture.conditional.chains import (
    Effort,
    Ladder,
    _begin,
    at_rung,
    exchange_points,
    exchange_ratio,
    one,
    one_point,
    run_conditional_chains,
    sweep,
)
from ardvark.inference.mixture.conditional.density import (
    Metric,
    Point,
    density,
    draw_rates,
    fill_rows,
    hmc,
    log_labels,
    log_weights,
    make_work,
    pack,
)
from ardvark.inference.mixture.conditional.exponential import LOWEST, exponentials
from ardvark.inference.mixture.conditional.jumps import (
    MOVES,
    POWERS,
    SHARES,
    Coefficients,
    choice_ratio,
    draw_new,
    fill_base,
    jump,
    jump_ratio,
    log_v,
    soft_statistics,
)
from ardvark.inference.mixture.kernels import rate_proposal
from ardvark.inference.mixture.run import conditional_posterior, read_mixture
from ardvark.inference.reversible_jump import Plan
from ardvark.inference.samplers.chain_statistics import ess_mean
from ardvark.models.mixture import rbf_mixture

A, G = 2.0, 0.2
CLASSES, KERNELS, INPUTS, ROWS = 3, 3, 4, 12


def problem_of(model):
    read = read_mixture(model, "reversible_jump", av.ReversibleJump())
    return read.problem(Evidence(*np.zeros((2, len(read.z))))), read


class Graph:
    """A graph with columns of unlike units, and its logp at natural values."""

    def __init__(self, expected_inputs=1.7):
        rng = np.random.default_rng(3)
        self.X = rng.normal(size=(ROWS, INPUTS)) * [1, 5, 0.1, 1] + [0, 3, 0, -2]
        self.t = np.array([0, 1, 2] * 4)
        self.model = rbf_mixture(
            self.X,
            self.t,
            n_kernels=KERNELS,
            expected_inputs=expected_inputs,
            target="conditional",
        )
        self.p, self.read = problem_of(self.model)
        with pytensor.config.change_flags(cxx=""):
            self.logp = self.model.compile_logp(jacobian=False, mode="FAST_COMPILE")
        self.work = make_work(CLASSES, KERNELS, INPUTS, ROWS)

    def point(self, seed, share=0.5) -> Point:
        walker = _begin(np.random.default_rng(seed), self.p, CLASSES, KERNELS, share, 1)
        return one_point(walker.points, 0)

    def __call__(self, s: Point) -> float:
        """The graph's log density in its own units, no Jacobians."""
        prior = self.read.prior
        spread = prior.spread[:, None]
        floor = (prior.resolution * prior.spread) ** 2

        def simplex(x):
            return x[..., :-1] - x.mean(axis=-1, keepdims=True)

        natural = {
            "included": s.on.astype(int),
            "class_probability_simplex__": simplex(s.A),
            "kernel_probability_simplex__": simplex(s.B),
            "kernel_mean": prior.centre[:, None] + spread * s.mean,
            "kernel_precision_log__": np.log(s.tau / spread**2),
            "kernel_rate_interval__": np.log(s.beta * prior.spread**2 - floor),
        }
        values = [self.model.rvs_to_values[rv].name for rv in self.model.free_RVs]
        return float(self.logp({name: natural[name] for name in values}))


@pytest.fixture(scope="module")
def graph():
    return Graph()


def copied(s: Point) -> Point:
    return Point(*(part.copy() for part in s))


def test_exponentials_are_those_of_numpy():
    x = np.concatenate(
        [-np.logspace(-300, 2.9, 2000), np.linspace(-710, 700, 5000), [0.0, -np.inf]]
    )
    found = x.copy()
    exponentials(found, np.empty_like(x))
    np.testing.assert_allclose(found, np.exp(np.maximum(x, LOWEST)), rtol=1e-15)


# --- density and gradient ----------------------------------------------------------------------


def at(graph, s):
    number = pack(s, graph.work.q)
    q, grad = graph.work.q[:number].copy(), np.empty(number)
    return density(graph.p, s, q, grad, graph.work), q, grad


def test_density_is_that_of_the_graph_with_the_jacobians_of_its_coordinates(graph):
    """Differences at one subset and rates; A and B have a common part that the graph has not."""
    for seed in range(8):
        s, other = graph.point(seed), graph.point(seed + 100)
        other.on[:], other.beta[:] = s.on, s.beta
        other.mean[~s.on], other.tau[~s.on] = s.mean[~s.on], s.tau[~s.on]

        def expected(x):
            more = sum((part - np.exp(part)).sum() for part in (x.A, x.B))
            return graph(x) + more + np.log(x.tau[x.on]).sum()

        found = at(graph, s)[0] - at(graph, other)[0]
        assert found == pytest.approx(expected(s) - expected(other), abs=1e-8)


@pytest.mark.parametrize("far", [False, True], ids=["usual", "underflow"])
def test_gradient_is_that_of_differences(graph, far):
    for seed in range(4):
        s = graph.point(seed, 0.7)
        if far:
            s.tau[:] *= 300
            s.B[:, 0] -= 40
        _, q, grad = at(graph, s)
        if far:
            assert np.abs(graph.work.rows).max() > 800  # e^-800 is 0
        for i in range(len(q)):
            near = []
            for sign in (-1, 1):
                moved, room = q.copy(), np.empty_like(q)
                moved[i] += sign * 1e-5
                near.append(density(graph.p, copied(s), moved, room, graph.work))
            slope = (near[1] - near[0]) / 2e-5
            assert grad[i] == pytest.approx(slope, rel=1e-5, abs=1e-4 if far else 1e-6)


# --- jumps -------------------------------------------------------------------------------------


def base(graph, s, new, old):
    log_weights(s, graph.work.log_w)
    fill_base(graph.p, s, new, old, graph.work)
    return graph.work.other.copy()


def of(s, j):
    return Coefficients(s.mean[j].copy(), s.tau[j].copy(), s.beta[j : j + 1].copy())


def by_scipy(p, j, r, c):
    """Log of prior over proposal."""
    law = stats.gamma(G, scale=1 / p.h[j])
    log_p = law.logpdf(c.beta[0]) - law.logsf(p.floor)
    log_p += stats.gamma.logpdf(c.tau, A, scale=1 / c.beta[0]).sum()
    log_p += stats.norm.logpdf(c.mean).sum()
    parts = [log_p]
    n, centre, scatter = soft_statistics(p.z[j], r)
    for power in POWERS[1:]:
        m, sum_of_squares = power * n, power * scatter
        u, scale, _ = rate_proposal(m, sum_of_squares, A, G, p.h[j], p.floor)
        log_beta, low = np.log(c.beta[0]), np.log(p.floor)
        log_q = stats.t.logpdf(log_beta, 4, u, scale) - stats.t.logsf(low, 4, u, scale) - log_beta
        shape, rate = A + np.maximum(m - 1, 0) / 2, c.beta[0] + sum_of_squares / 2
        log_q += stats.gamma.logpdf(c.tau, shape, scale=1 / rate).sum()
        middle, sd = m * c.tau * centre / (1 + m * c.tau), (1 + m * c.tau) ** -0.5
        parts.append(log_q + stats.norm.logpdf(c.mean, middle, sd).sum())
    return log_p - logsumexp(parts, b=SHARES)


def test_proposal_is_the_one_whose_density_the_ratio_has(graph):
    """Against scipy, and as a law: prior over proposal has mean 1 under the proposal."""
    s = graph.point(5, 0.6)
    j = int(np.flatnonzero(~s.on)[0])
    r = base(graph, s, j, -1)
    rng = np.random.default_rng(1)
    new = Coefficients(np.empty(KERNELS), np.empty(KERNELS), np.empty(1))
    value = np.empty(20000)
    for i in range(len(value)):
        draw_new(rng, graph.p, j, r, new)
        value[i] = log_v(graph.p, j, r, new)
        if i < 20:
            assert value[i] == pytest.approx(by_scipy(graph.p, j, r, new), abs=1e-8)
    weight = np.exp(value)
    assert weight.max() <= 1 / SHARES[0] + 1e-12  # defensive
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(len(weight))
    assert weight.std() / np.sqrt(len(weight)) < 0.02


@pytest.mark.parametrize("states", [6, pytest.param(2500, marks=pytest.mark.validate)])
@pytest.mark.parametrize("kind", ["birth", "death", "exchange", "renewal"])
def test_ratio_of_a_jump_is_that_of_the_graph_and_the_way_back_undoes_it(graph, kind, states):
    p, work = graph.p, graph.work
    for seed in range(states):
        s = graph.point(seed, 0.5)
        s.on[:2] = True, False
        out, inside = np.flatnonzero(~s.on), np.flatnonzero(s.on)
        new = -1 if kind == "death" else int(out[0])
        old = -1 if kind == "birth" else int(inside[0])
        new = old if kind == "renewal" else new
        there = copied(s)
        if new >= 0:
            fresh = graph.point(seed + 10_000)
            for part in ("mean", "tau", "beta"):
                getattr(there, part)[new] = getattr(fresh, part)[new]
        if old >= 0:
            there.on[old] = False
        if new >= 0:
            there.on[new] = True
        r = base(graph, s, new, old)
        chance = np.random.default_rng(seed).uniform(0.1, 1, INPUTS)
        ratio, after = jump_ratio(p, s, new, old, of(there, new), of(s, old), work)
        ratio += choice_ratio(p, s.on, chance, new, old)
        r_back = base(graph, there, old, new)
        back, before = jump_ratio(p, there, old, new, of(s, old), of(there, new), work)
        back += choice_ratio(p, there.on, chance, old, new)
        assert ratio + back == pytest.approx(0, abs=1e-9 * max(1, abs(ratio)))
        # In the graph's one space the coefficients that enter were there before, from the prior.
        start = copied(s)
        if kind in ("birth", "exchange"):
            for part in ("mean", "tau", "beta"):
                getattr(start, part)[new] = getattr(there, part)[new]
        expected = graph(there) - graph(start)
        if kind == "renewal":  # the prior of what changes is in V
            for sign, point in ((-1, there), (1, s)):
                law = stats.gamma(G, scale=1 / p.h[new])
                c = of(point, new)
                expected += sign * law.logpdf(c.beta[0])
                expected += sign * stats.gamma.logpdf(c.tau, A, scale=1 / c.beta[0]).sum()
                expected += sign * stats.norm.logpdf(c.mean).sum()
        expected += by_scipy(p, new, r, of(there, new)) if new >= 0 else 0
        expected -= by_scipy(p, old, r_back, of(s, old)) if old >= 0 else 0
        outside, size = chance[~s.on].sum(), s.on.sum()
        if kind == "birth":
            expected += np.log(outside / chance[new] / (size + 1))
        if kind == "death":
            expected += np.log(size * chance[old] / (outside + chance[old]))
        if kind == "exchange":
            there_outside = chance[~there.on].sum()
            expected += np.log(chance[old] / there_outside / (chance[new] / outside))
        assert ratio + after - before == pytest.approx(expected, rel=1e-9, abs=1e-7)


# --- chains: the successive-conditional test of Geweke (2004) ----------------------------------


def geweke(own_sweep, seed=0, length=8000):
    """|z| of moments when labels and all else are drawn in turn: the prior must come out."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, 2))
    model = rbf_mixture(X, [0, 1] * 3, n_kernels=2, target="conditional")
    p, _ = problem_of(model)
    walker = _begin(rng, p, 2, 2, 0.5, 1)
    s, metric = one_point(walker.points, 0), one(walker.ladder.metrics, 0)
    metric.step[0], work = 0.8, make_work(2, 2, 2, 6)
    counts = np.zeros((2, 4, 3), np.int64)
    seen = np.empty((length, 8))
    for i in range(length):
        own_sweep(rng, p, s, metric, counts, work)
        joint = np.zeros((6, 2))
        for j in np.flatnonzero(s.on):
            joint += stats_normal(p.z[j][:, None], s.mean[j], s.tau[j])
        class_log = np.log(softmax(s.A)) + logsumexp(
            joint[:, None, :] + np.log(softmax(s.B, axis=1)), axis=2
        )
        p.label[:] = rng.random(6) < softmax(class_log, axis=1)[:, 1]
        on = s.on
        seen[i] = (
            on.sum(), on[0], softmax(s.A)[0], softmax(s.B, axis=1)[0, 0] ** 2, s.mean[on].sum(),
            (s.mean[on] ** 2).sum(), np.log(s.tau[on]).sum(), np.log(s.beta[on]).sum(),
        )  # fmt: skip
    weight = np.array([1, 2, 1]) * np.exp(p.log_prior)
    size = weight @ np.arange(3) / weight.sum()
    law = stats.gamma(G, scale=1 / p.h[0])
    log_beta = np.log(law.isf((np.arange(200_000) + 0.5) / 200_000 * law.sf(p.floor))).mean()
    log_tau = stats.loggamma.mean(A) - log_beta
    exact = [size, size / 2, 0.5, 1 / 3, 0, 2 * size, 2 * size * log_tau, size * log_beta]
    error = seen.std(axis=0) / np.sqrt(ess_mean(seen[None]))
    return np.abs(seen.mean(axis=0) - exact) / error


def stats_normal(x, mean, tau):
    return 0.5 * np.log(tau) - 0.5 * tau * (x - mean) ** 2


CHANCE = np.array([0.7, 0.3])


def sweep_without(rng, p, s, metric, counts, work, jumps=2):
    """Jumps, rates and HMC that does not move."""
    still = metric._replace(step=np.zeros(3))
    sweep(rng, p, s, still, CHANCE, Effort(jumps, 1), counts, work)


def test_labels_and_sweeps_in_turn_give_back_the_prior():
    def right(rng, p, s, metric, counts, work):
        sweep(rng, p, s, metric, CHANCE, Effort(2, 4), counts, work)

    assert geweke(right).max() < 4


def lone_move(move):
    """A sweep of HMC and one kind of jump; births and deaths only together."""

    def own(rng, p, s, metric, counts, work):
        sweep(rng, p, s, metric, CHANCE, Effort(0, 4), counts, work)
        log_weights(s, work.log_w)
        fill_rows(p, s, -1, work.rows)
        now = np.array([p.power * log_labels(p.label, work)])
        for _ in range(3):
            kind = MOVES.index(move) if move != "birth" else int(rng.random() * 2)
            jump(rng, p, s, kind, CHANCE, now, work)

    return own


@pytest.mark.validate
@pytest.mark.parametrize("move", ["birth", "exchange", "renewal"])
def test_labels_and_one_kind_of_move_give_back_the_prior(move):
    """Exchanges and renewals keep the size: beside births, which the first case shows right."""
    births, own = lone_move("birth"), lone_move(move)

    def both(*parts):
        births(*parts)
        own(*parts)

    assert geweke(both if move != "birth" else births, seed=1, length=30_000).max() < 4


def test_a_missing_jacobian_is_caught():
    """HMC on log τ without the Jacobian τ: a - 1 for a in its prior."""

    def wrong(rng, p, s, metric, counts, work):
        hmc(rng, p._replace(shape=p.shape - 1), s, metric, 4, work)
        draw_rates(rng, p, s)
        sweep_without(rng, p, s, metric, counts, work)

    assert geweke(wrong).max() > 6


@pytest.mark.validate
def test_a_choice_that_the_ratio_does_not_know_is_caught():
    """Inputs tried by one set of chances, the ratio told of another."""

    def wrong(rng, p, s, metric, counts, work):
        sweep(rng, p, s, metric, CHANCE, Effort(0, 4), counts, work)
        log_weights(s, work.log_w)
        fill_rows(p, s, -1, work.rows)
        now = np.array([p.power * log_labels(p.label, work)])
        for _ in range(2):
            move = int(rng.random() * 2)
            chance = CHANCE if move else CHANCE * [1.0, 4.0]
            jump(rng, p, s, move, chance, now, work)

    assert geweke(wrong, length=30_000).max() > 6


# --- exchanges on the ladder -------------------------------------------------------------------


def test_ratio_of_an_exchange_is_that_of_two_graphs_and_the_way_back_undoes_it(graph):
    """A rung at s = 1 with a λ of its own is a graph with that λ."""
    tilt = 0.7
    other = Graph(1.7 * np.exp(tilt))
    ladder = ladder_of(np.ones(2), np.array([0.0, tilt]))
    for seed in range(6):
        s, there = graph.point(seed, 0.3), graph.point(seed + 50, 0.8)
        size = np.array([s.on.sum(), there.on.sum()], float)
        energy = np.array([label_energy(graph, s), label_energy(graph, there)])
        found = exchange_ratio(ladder, 0, energy, size)
        expected = graph(there) - graph(s) - (other(there) - other(s))
        assert found == pytest.approx(expected, abs=1e-8)
        assert found + exchange_ratio(ladder, 0, energy[::-1].copy(), size[::-1].copy()) == 0
        powers = ladder._replace(powers=np.array([1.0, 0.4]))
        more = exchange_ratio(powers, 0, energy, size) - found
        assert more == pytest.approx(0.6 * (energy[1] - energy[0]))


def label_energy(graph, s):
    log_weights(s, graph.work.log_w)
    fill_rows(graph.p, s, -1, graph.work.rows)
    return log_labels(graph.p.label, graph.work)


def test_a_rung_has_the_prior_of_its_own_size(graph):
    own = at_rung(graph.p, 0.5, 0.7)
    wider = problem_of(
        rbf_mixture(graph.X, graph.t, expected_inputs=1.7 * np.exp(0.7), target="conditional")
    )[0]
    difference = own.log_prior - wider.log_prior
    np.testing.assert_allclose(difference, difference[0])  # a constant: ratios are the same
    assert own.power == 0.5


def ladder_of(powers, tilts):
    """A ladder without what a sweep needs."""
    return Ladder(Metric(*[np.empty((1, 1))] * 4), powers, tilts, np.empty(1))


def exchanged(ladder, told, number=20_000):
    """|z| of mean energy and size on each rung, drawn exactly, after a pass of exchanges."""
    rng = np.random.default_rng(4)
    table = rng.normal(scale=3, size=12), rng.integers(0, 6, 12).astype(float)
    rungs = len(ladder.powers)
    seen, exact = np.empty((number, 2 * rungs)), np.empty(2 * rungs)
    law = softmax(np.outer(ladder.powers, table[0]) + np.outer(ladder.tilts, table[1]), axis=1)
    exact[:rungs], exact[rungs:] = law @ table[0], law @ table[1]
    drawn = np.stack([rng.choice(12, number, p=p) for p in law], axis=1)
    for i, state in enumerate(drawn):
        place, energy, size = np.arange(rungs), table[0][state], table[1][state]
        exchange_points(rng, told, place, energy, size, np.empty(rungs - 1))
        assert (energy == table[0][state[place]]).all()
        assert (size == table[1][state[place]]).all()
        seen[i] = np.append(energy, size)
    return np.abs(seen.mean(axis=0) - exact) / (seen.std(axis=0) / np.sqrt(number))


def test_exchanges_leave_every_rung_as_it_is_and_forgotten_sizes_are_caught():
    ladder = ladder_of(np.array([1.0, 0.6, 0.2]), np.array([0.0, 0.5, 1.1]))
    assert exchanged(ladder, ladder).max() < 4
    assert exchanged(ladder, ladder._replace(tilts=np.zeros(3))).max() > 10


# --- chains: the posterior of another route ----------------------------------------------------


def tiny(seed, rows=13, inputs=3):
    rng = np.random.default_rng(seed)
    t = np.arange(rows) % 2
    X = rng.normal(size=(rows, inputs))
    X[:, 0] += 1.5 * t
    X[:, 1] += 0.7 * t
    return rbf_mixture(X, t, n_kernels=2, target="conditional")


def distance(model, rungs, exact, sweeps):
    """Total variation between chains and `conditional_posterior`."""
    p, read = problem_of(model)
    inputs = len(read.z)
    chains = run_conditional_chains(
        p, 2, 2, Plan(1000, 1, sweeps), effort=Effort(3, 8), rungs=rungs, seed=1
    )
    code = np.concatenate([chain.visited for chain in chains]) @ (1 << np.arange(inputs)[::-1])
    found = np.bincount(code, minlength=1 << inputs) / len(code)
    return np.abs(found - exact.probability.values).sum() / 2


@pytest.fixture(scope="module")
def other_route():
    return conditional_posterior(tiny(0), 40_000)


@pytest.mark.parametrize("rungs", [1, 3])
def test_subsets_have_the_probabilities_of_the_other_route(other_route, rungs):
    assert distance(tiny(0), rungs, other_route, 10_000) < 0.03


@pytest.mark.validate
@pytest.mark.parametrize("seed", range(20))
def test_subsets_of_random_problems_have_the_probabilities_of_the_other_route(seed):
    model = tiny(seed)
    assert distance(model, 2, conditional_posterior(model, 200_000), 60_000) < 0.03
