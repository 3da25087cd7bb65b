"""Every way in which draws can go wrong is found, named, and told in words that can be joined."""

import numpy as np
import xarray as xr

from ardvark.inference.samplers.convergence import BFMI_MIN, ESS_PER_CHAIN, RHAT_MAX, convergence


def good_record() -> tuple[xr.Dataset, xr.Dataset]:
    own = np.random.default_rng(5)
    w, bias, energy = (own.normal(size=(4, 500, *extra)) for extra in ((3,), (), ()))
    posterior = xr.Dataset(
        {"w": (("chain", "draw", "feature"), w), "bias": (("chain", "draw"), bias)},
        {"feature": ["x0", "x1", "x2"]},
    )
    stats = xr.Dataset(
        {
            "diverging": (("chain", "draw"), np.zeros((4, 500), bool)),
            "energy": (("chain", "draw"), energy),
        }
    )
    return posterior, stats


def test_good_record() -> None:
    posterior, stats = good_record()
    posterior["w"][..., 1] = 0.0  # a weight that is switched off
    problems, numbers = convergence(posterior, stats, 500)
    assert problems == []
    assert numbers["rhat_max"] <= RHAT_MAX
    assert numbers["ess_bulk_min"] >= 4 * ESS_PER_CHAIN
    assert numbers["ess_tail_min"] >= 4 * ESS_PER_CHAIN
    assert numbers["bfmi_min"] >= BFMI_MIN


def test_chains_that_disagree_are_named() -> None:
    posterior, stats = good_record()
    posterior["w"][3, :, 2] += 5.0
    problems, numbers = convergence(posterior, stats, 500)
    assert numbers["rhat_max"] > 1.5
    assert any(
        "R-hat" in p and "w[x2]" in p and f"{numbers['rhat_max']:.4g}" in p for p in problems
    )
    assert any("(bulk)" in p and "w[x2]" in p for p in problems)


def test_stuck_chains_are_named() -> None:
    posterior, stats = good_record()
    posterior["bias"][:] = np.arange(4)[:, None]
    problems, _ = convergence(posterior, stats, 500)
    assert any("R-hat" in p and "bias" in p for p in problems)


def test_divergences_energy_and_short_runs_are_told() -> None:
    posterior, stats = good_record()
    stats["diverging"][1, 7:10] = True
    stats["energy"][2] = np.cumsum(stats["energy"][2])
    problems, numbers = convergence(posterior, stats, 800)
    assert numbers["divergences"] == 3
    assert any(p.startswith("3 of 2000 draws diverged") for p in problems)
    assert any("E-BFMI" in p and "chain 2" in p for p in problems)
    assert any("500 of 800" in p for p in problems)


def test_missing_draws_one_chain_and_no_movement_are_no_convergence() -> None:
    posterior, stats = good_record()
    posterior["w"][0, 0, 0] = np.nan
    assert any("nan of w[x0]" in p for p in convergence(posterior, stats, 500)[0])
    posterior, stats = good_record()
    one = convergence(posterior.isel(chain=[0]), stats.isel(chain=[0]), 500)[0]
    assert any("One chain" in p for p in one)
    assert any("never moved" in p for p in convergence(posterior * 0, stats, 500)[0])


def test_problems_can_be_joined_into_one_sentence() -> None:
    posterior, stats = good_record()
    posterior["w"][3, :, 2] += 5.0
    stats["diverging"][1, 7] = True
    stats["energy"][2] = np.cumsum(stats["energy"][2])
    problems = [
        *convergence(posterior, stats, 800)[0],
        *convergence(posterior.isel(chain=[0]), stats.isel(chain=[0]), 500)[0],
        *convergence(posterior * 0, stats, 500)[0],
    ]
    said = "; ".join(problems)
    for word in ("R-hat", "800 draws", "(bulk)", "diverged", "E-BFMI", "One chain", "never moved"):
        assert word in said
    assert ".;" not in said and not said.endswith(".")
