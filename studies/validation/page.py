"""Tables of the site from the results of the lanes: `studies/results/tables/validation.json`.

    python -m ardvark.studies.validation.page

The site shows them by the directive `results`; nothing on the page is typed by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ardvark.diagnostics.storage.atomic import write_text
from ardvark.studies.validation.lane import RESULTS

__all__ = ["tables", "write_tables"]

TABLES = RESULTS.parent / "tables" / "validation.json"
BAND = 2.576
type Rows = list[list[str]]


def write_tables(results: Path = RESULTS, out: Path = TABLES) -> None:
    """Write every table whose lane has results."""
    text = {
        "study": "validation",
        "title": "Validation",
        "paper": None,
        "tables": dict(tables(results)),
    }
    write_text(out, json.dumps(text, indent=1, ensure_ascii=False) + "\n")


def tables(results: Path = RESULTS) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every table by its name."""
    makers = {
        "calibration": _calibration,
        "kernels": _kernels,
        "references": _references,
        "certificate": _certificate,
        "sbc_conditional_mixture": _conditional,
        "tiny_mixtures": _tiny,
    }
    found = {}
    for lane, make in makers.items():
        path = results / f"{lane}.json"
        if path.exists():
            found[lane] = json.loads(path.read_text(encoding="utf-8"))
            yield from make(found[lane])
    if "certificate" in found and "calibration" in found:
        yield "biases", _biases(found["certificate"], found["calibration"])
    yield "lanes", _overview(found)


def _table(
    found: Mapping[str, Any], caption: str, columns: list[str], rows: Rows
) -> dict[str, Any]:
    made = f"{found['date']}, commit {found['commit'][:9]}, ardvark {found['versions']['ardvark']}"
    return {
        "command": found["command"],
        "caption": f"{caption} ({made})",
        "columns": columns,
        "rows": rows,
    }


# Calibration --------------------------------------------------------------------------------------

KINDS = {
    "exact": "Methods that claim the posterior itself",
    "approximate": "Approximations: how far off they are, on average over the prior",
    "searched": "Hyperparameters searched for (type-II): coverage of the weights",
}


def _calibration(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    columns = [
        "model",
        "method",
        "θ",
        "replications",
        "50 %",
        "90 %",
        "99 %",
        "smallest p",
        "uniform",
    ]
    for kind, caption in KINDS.items():
        rows = [_pair(e, found) for e in found["entries"] if e["truth"] == kind]
        yield f"calibration_{kind}", _table(found, caption, columns, rows)
    rows = [_inclusion(e) for e in found["entries"] if "inclusion" in e]
    columns = [
        "model",
        "method",
        "replications",
        "Brier",
        "p",
        "isotonic p",
        "mean less prior",
        "p",
    ]
    caption = "Are inclusion probabilities frequencies?"
    yield "calibration_inclusion", _table(found, caption, columns, rows)
    few = [[*name.split("/"), str(count)] for name, count in found["too_few"].items()]
    columns = ["model", "setting", "method", "θ", "replications"]
    yield "calibration_few", _table(found, "Pairs with too few replications yet", columns, few)


def _pair(e: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    if e["truth"] == "searched":
        verdict = ""
    elif e["calibrated"]:
        verdict = "yes"
    else:
        verdict = "in this pair no" if e["calibrated_overall"] else "no"
    failed = f", {e['failed']} failed" if e["failed"] else ""
    shares = [_share(e, p) for p in (50, 90, 99)]
    worst = f"{_p(e['uniformity_p'])} ({e['worst']})"
    return [
        f"`{e['model']}`, {e['setting']}", e["method"], f"{e['hyper']}",
        f"{e['replications']} of {e['of']}{failed}{_earlier(e)}", *shares, worst, verdict,
    ]  # fmt: skip


def _earlier(e: Mapping[str, Any]) -> str:
    return f" (run of {e['origin']['date']}, {e['origin']['commit'][:9]})" if "origin" in e else ""


def _share(e: Mapping[str, Any], p: int) -> str:
    share, band = 100 * e[f"coverage_{p}"], 100 * BAND * e[f"coverage_{p}_se"]
    inside = abs(share - p) <= band
    text = f"{share:.1f} ± {band:.1f}"
    return text if inside else f"**{text}**"


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-15 else "< 1e-15"


def _inclusion(e: Mapping[str, Any]) -> list[str]:
    tests = e["inclusion"]
    return [
        f"`{e['model']}`, {e['setting']}", e["method"], str(e["replications"]),
        f"{tests['brier']:.4f}", _p(tests["brier_p"]), _p(tests["isotonic_p"]),
        f"{tests['mean']:+.4f}", _p(tests["mean_p"]),
    ]  # fmt: skip


# Kernels ------------------------------------------------------------------------------------------


def _kernels(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    columns = ["kernel", "fault", "Geweke: largest abs. z", "rounds", "two samples: p", "draws", ""]
    rows = []
    for row in found["rows"]:
        verdict = "found" if row["found"] else "not found" if row["fault"] else "passes"
        if row["found"] and not row["fault"]:
            verdict = "rejected"
        rows.append([
            row["kernel"] if not row["fault"] else "", row["fault"] or "as it is",
            f"{row['z']:.1f}", str(row["rounds"]), _p(row["two_samples_p"]),
            str(row["two_samples_draws"]), f"{verdict}{_earlier(row)}",
        ])  # fmt: skip
    caption = "Each kernel as it is, and with planted faults"
    if found["not_run"]:
        caption += f"; {found['not_run']} more of them have not been run yet"
    yield "kernels", _table(found, caption, columns, rows)


# The mixture under P(t | x) -----------------------------------------------------------------------


def _conditional(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = []
    for name, one in found["experiments"].items():
        worst = min(one["ranks"], key=lambda rank: one["ranks"][rank]["uniformity_p"])
        tests = one["inclusion"]
        rows.append([
            CHAINS[name], str(one["replications"]),
            f"{_p(one['ranks'][worst]['uniformity_p'])} ({worst})",
            *(_p(tests[f"{test}_p"]) for test in ("brier", "isotonic", "mean")),
        ])  # fmt: skip
    columns = ["chain", "replications", "smallest p of ranks", "Brier p", "isotonic p", "mean p"]
    yield "conditional", _table(found, "Calibration of the mixture under P(t | x)", columns, rows)


CHAINS = {"right": "as it is", "wrong_prior": "planted: λ = 3 where the truth has 1"}


def _tiny(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    rows, evidences = [], []
    for name, one in found["experiments"].items():
        if "z" in one:
            worst = (f"{one[key]:.{digits}f}" for key, digits in TINY)
            rows.append([name, f"{len(one['units'])} of {one['of']}", *worst])
            continue
        for unit in one["units"]:
            routes = (
                f"{unit[r]:.3f} ± {unit[f'{r}_error']:.3f}" for r in ("exact", "smc", "bridge")
            )
            evidences.append([name.removeprefix("evidences "), unit["subset"], *routes])
    caption = (
        "Subsets of tiny problems: chains beside draws from the prior, the worst of all problems"
    )
    columns = ["rows", "problems", "total variation", "of it expected", "largest abs. z"]
    yield "tiny", _table(found, caption, columns, rows)
    if evidences:
        columns = ["rows", "subset", "draws from the prior", "SMC", "bridge"]
        caption = "Log evidence of given subsets"
        yield "tiny_evidences", _table(found, caption, columns, evidences)


TINY = (("total_variation", 3), ("noise", 3), ("z", 1))


# References ---------------------------------------------------------------------------------------


def _references(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    columns = ["data-model", "parameters", "R-hat", "ESS bulk", "ESS tail", "divergences",
               "E-BFMI", "lag 1", "rule"]  # fmt: skip
    rows = []
    for row in found["rows"]:
        missed = [name for name, good in row["checks"].items() if not good]
        rows.append([
            row["name"], str(row["parameters"]), f"{row['r_hat']:.4f}", f"{row['ess_bulk']:.0f}",
            f"{row['ess_tail']:.0f}", str(row["divergences"]), f"{row['bfmi']:.2f}",
            f"{row['lag_1']:.3f}", ", ".join(missed) or "kept",
        ])  # fmt: skip
    caption = "Reference posteriors: the worst of all parameters, 10 chains, 10,000 kept draws"
    yield "references", _table(found, caption, columns, rows)


# Certificate --------------------------------------------------------------------------------------


def _certificate(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = []
    for rule, one in found["rules"].items():
        for model, sizes in one["errors"].items():
            rows.append([
                rule, model, str(sizes["replications"]), *_three(sizes["mean_error"]),
                *_three(sizes["sd_error"]), _signed(sizes["outward"]),
                _signed([sizes["sd_ratio"][0] - 1, sizes["sd_ratio"][1]], 100, " %"),
            ])  # fmt: skip
    columns = ["method", "model", "replications", "mean: median", "90 %", "99 %", "sd: median",
               "90 %", "99 %", "means outward", "sds"]  # fmt: skip
    caption = (
        "Errors at true hyperparameters, the largest over the weights: means in posterior sds, sds "
        "as a share; then the averages with their sign (outward: away from zero, in sds)"
    )
    yield "errors", _table(found, caption, columns, rows)
    rows = []
    for rule, one in found["rules"].items():
        for error, by in one["bounds"].items():
            for indicator, b in by.items():
                if "coverage" not in b:
                    continue
                rows.append([
                    rule, error.replace("_", " "), f"`{indicator}`", _number(b["spearman"]),
                    " / ".join(f"{c:.3g}" for c in b["c"]),
                    " / ".join(f"{100 * s:.1f}" for s in b["coverage"]),
                    " / ".join(f"{s:.1f}" for s in b["median_bound_over_error"]),
                    "yes" if b["holds"] else "no",
                ])  # fmt: skip
    columns = ["method", "error", "indicator", "rank correlation", "c", "kept in % of other half",
               "bound over error, median", "99 % in both"]  # fmt: skip
    caption = (
        f"error ≤ {found['floor']} + c · indicator, c being {found['margin']} times the largest "
        "that one half of the models asks for"
    )
    yield "bounds", _table(found, caption, columns, rows)
    rows = [
        [one["rule"], one["link"], *(f"{one[name]:.2f}" for name in
         ("mean_shift", "bound", "mean_error"))]
        for one in found.get("searched", ())
    ]  # fmt: skip
    columns = ["method", "link", "`mean_shift`", "bound", "true error of the mean, sds"]
    caption = "The same bound on 30 separable rows, at hyperparameters that a search has found"
    yield "bounds_searched", _table(found, caption, columns, rows)


def _three(values: list[float]) -> list[str]:
    return [f"{value:.3f}" for value in values]


def _signed(pair: list[float], scale: float = 1.0, unit: str = "") -> str:
    digits = 3 if scale == 1.0 else 1
    return f"{scale * pair[0]:+.{digits}f}{unit} ({scale * pair[1]:.{digits}f})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


METHODS = {"ep": "EP", "laplace": "Laplace", "vb": "VB"}


def _biases(errors: Mapping[str, Any], places: Mapping[str, Any]) -> dict[str, Any]:
    """Sign and size of each approximation's error at true hyperparameters, over all models."""
    rows = []
    for rule, name in METHODS.items():
        sizes = errors["rules"].get(rule, {}).get("errors", {})
        held = [
            e for e in places["entries"]
            if e["method"] == rule and e["hyper"] in ("held", "given") and e["truth"] != "exact"
        ]  # fmt: skip
        if not sizes:
            continue
        means = [one["outward"][0] for one in sizes.values()]
        sds = [100 * (one["sd_ratio"][0] - 1) for one in sizes.values()]
        shares = [100 * e["coverage_90"] for e in held]
        rows.append([
            name, f"{min(means):+.3f} to {max(means):+.3f}", _way(means, "outward", "inward", 0.01),
            f"{min(sds):+.1f} to {max(sds):+.1f} %", _way(sds, "too wide", "too narrow", 1.0),
            f"{min(shares):.1f} to {max(shares):.1f}" if shares else "",
        ])  # fmt: skip
    columns = ["method", "means, posterior sds", "sign", "sds", "sign", "90 % intervals hold, %"]
    caption = (
        "Known biases at true hyperparameters, averages by model from the least to the largest"
    )
    return _table(errors, caption, columns, rows)


def _way(values: list[float], up: str, down: str, small: float) -> str:
    """The sign, where it is the same in every model that is not nearly zero."""
    signs = {value > 0 for value in values if abs(value) > small}
    return "none" if not signs else "both" if len(signs) == 2 else up if signs == {True} else down


# All lanes ----------------------------------------------------------------------------------------


def _overview(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    rows: Rows = []
    if one := found.get("calibration"):
        exact = [e for e in one["entries"] if e["truth"] == "exact"]
        passed = sum(e["calibrated_overall"] for e in exact)
        what = f"{len(one['entries'])} of {one['pairs']} pairs, {one['replications']} replications"
        rows.append(["calibration", what, f"{passed} of {len(exact)} exact methods uniform"])
    if one := found.get("kernels"):
        what = f"{one['kernels']} kernels, {one['faults']} planted faults"
        ended = f"{one['kernels_passed']} pass, {one['faults_found']} faults found"
        rows.append(["kernels", what, ended])
    if one := found.get("references"):
        kept = sum(all(row["checks"].values()) for row in one["rows"])
        rows.append(
            ["references", f"{len(one['rows'])} of {one['pairs']} pairs", f"{kept} keep the rule"]
        )
    if one := found.get("certificate"):
        fits = sum(rule["replications"] for rule in one["rules"].values())
        held = sorted({
            f"{rule}: {indicator}" for rule, r in one["rules"].items()
            for by in r["bounds"].values() for indicator, b in by.items() if b.get("holds")
        })  # fmt: skip
        rows.append(
            ["certificate", f"{fits} fits with a known truth", f"{len(held)} bounds hold in 99 %"]
        )
    for row in rows:
        row += [found[row[0]]["date"], f"{found[row[0]].get('cpu_seconds', 0) / 60:.0f}"]
    first = next(iter(found.values()), {"date": "", "commit": "", "versions": {"ardvark": ""}})
    return _table(
        dict(first) | {"command": "python -m ardvark.studies.validation"},
        "What was run, and what came of it",
        ["lane", "what", "outcome", "date", "CPU minutes"],
        rows,
    )


if __name__ == "__main__":
    write_tables()
