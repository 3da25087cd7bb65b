"""Commands that check: `ardvark sbc`, `ardvark diagnose`.

Like the command line itself this imports nothing heavy before it is needed.
"""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ardvark.commands.own import is_own, own_model
from ardvark.commands.tasks import STANDARD_OUTPUT, Flag, Output, UsageError, as_lines, known

__all__ = ["diagnose", "model_on", "sbc"]


def model_on(name: str, rows: int, inputs: int, data: str | None, options: dict[str, Any]) -> Any:
    """Build a model on standard normal inputs, or on those of a data set; a process can import it.

    Only the kind of the targets matters: calibration simulates them.
    """
    import numpy as np

    import ardvark as av

    if data is None:
        X: Any = np.random.default_rng(0).standard_normal((rows, inputs))
        t = X[:, 0] - X[:, -1] * 0.5
        t = (t > 0).astype(int) if "regression" not in name else t
    else:
        loaded = av.standardise(av.load(data))
        X, t = loaded.X, loaded.t
    return getattr(av.models, name)(X, t, **options)


def sbc(
    model: str | None = None,
    *,
    method: str = "ep",
    replications: int = 1000,
    jobs: int = 1,
    scheduler: str | None = None,
    out: Path | None = None,
    rows: int = 50,
    inputs: int = 4,
    data: str | None = None,
    option: tuple[str, ...] = (),
    hold: bool | None = None,
    seed: int = 1,
    draws: int = 250,
    chains: int = 4,
    strict: Flag = False,
    output: Output = STANDARD_OUTPUT,
) -> int:
    """Simulate from a model's prior, fit, and check where the truth lies in the posterior.

    Parameters
    ----------
    model
        model of `ardvark list`; or my_model.py:model, whose observed values are a pm.Data.
    method
        method of `ardvark list`.
    replications
        simulated data sets.
    jobs
        processes.
    scheduler
        address of a Dask scheduler, tcp://host:8786, whose workers replicate instead.
    out
        folder that keeps replications: a run that was killed goes on where it was.
    rows, inputs
        size of the simulated inputs.
    data
        take the inputs of this data set instead.
    option
        argument of the builder, name=value, such as link=logit; may be repeated.
    hold
        hold hyperparameters at their simulated values (the default for laplace and ep).
    seed, draws, chains
        seed of everything; draws per chain and chains of methods that sample.
    strict
        exit code 1 if a quantity is not calibrated, 2 if a fit failed.
    """
    import ardvark as av
    from ardvark.inference.methods import METHODS
    from ardvark.models.registry import MODELS

    known("method", method, METHODS)
    options = _options(option)
    if model is None:
        raise UsageError("sbc", "sbc needs a model: `ardvark sbc ard_classification --method ep`")
    if is_own(model):
        if data is not None or option:
            raise UsageError(
                "sbc", f"{model} has its inputs inside: --data, --option are not for it"
            )
        build: Any = own_model(model)
    else:
        known("model", model, MODELS)
        build = partial(model_on, model, rows, inputs, data, options)
    with output.bar(f"{method} on {model}", replications) as tick:
        tree = av.sbc(
            build, method, replications, hold=hold, draws=draws, chains=chains,
            random_seed=seed, folder=out, executor=scheduler or jobs, tick=tick,
        )  # fmt: skip
    table = av.diagnostics.sbc_summary(tree)
    facts = {
        k: tree.attrs[k] for k in ("replications", "failed", "not_converged", "hold", "sha256")
    }
    numbers = {
        "model": model,
        "method": method,
        **facts,
        "failures": json.loads(tree.attrs["failures"]),
        "calibrated": bool(table["calibrated"].all()),
        "quantities": json.loads(table.to_json(orient="index")),
    }
    shown = table.drop(columns=["coverage_50_se", "coverage_90_se"])
    output.show(numbers, lambda: f"{shown.to_string(float_format='%.3f')}\n\n{as_lines(facts)}")
    if not strict:
        return 0
    return 2 if facts["failed"] else 0 if numbers["calibrated"] else 1


def _options(pairs: Iterable[str]) -> dict[str, Any]:
    """Read name=value, a value being JSON or else text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--option {pair}: expected name=value, such as link=logit")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def diagnose(
    *trees: Path,
    strict: Flag = False,
    output: Output = STANDARD_OUTPUT,
) -> int:
    """Show the diagnostics of stored trees: chains, effective draws, convergence.

    Parameters
    ----------
    trees
        zarr trees that `ardvark fit` stored, or folders of them.
    strict
        exit code 1 if something needs attention, 2 if a check failed.
    """
    if not trees:
        raise ValueError(
            "diagnose needs a tree, or a folder of trees, and found none: name what `ardvark fit` "
            "stored"
        )
    from ardvark.diagnostics.compare.psis import khat_and_error
    from ardvark.diagnostics.compare.verdict import khat_in_words, khat_level
    from ardvark.diagnostics.finding import worst_level
    from ardvark.diagnostics.report.case import Case
    from ardvark.diagnostics.report.parts.convergence import convergence_part
    from ardvark.diagnostics.storage.trees import has_checksums, read_tree, trees_in
    from ardvark.diagnostics.words import number, plain

    loaded: dict[str, Any] = {}
    sure: dict[str, bool] = {}
    for path in trees:
        if path.is_dir() and path.suffix != ".zarr":
            for name, tree in trees_in(path).items():
                loaded[str(path / name)] = tree
                sure[str(path / name)] = has_checksums(path / f"{name}.zarr")
        else:
            loaded[str(path)], sure[str(path)] = read_tree(path), has_checksums(path)
    found, lines = {}, []
    for name, tree in loaded.items():
        case = Case({name: tree}, None)
        quality, own = case.quality[name], convergence_part(case)["methods"][0]
        shape = khat_and_error(tree)
        level = worst_level([own["level"], "good" if quality.ok else "bad", khat_level(*shape)])
        found[name] = {
            "level": level,
            "method": own["method"],
            "checksums": sure[name],
            "converged": own["converged"],
            "problems": own["problems"],
            "draws": plain(quality.as_dict()),
            "khat": plain(shape[0]),
            "khat_se": plain(shape[1]),
            "facts": plain({fact["what"]: fact["value"] for fact in own["facts"]}),
        }
        lines += [f"{name}: {own['method']}, {_words(level)}"]
        lines += [] if sure[name] else ["  no checksums: damage to the files would not be detected"]
        lines += _told(quality, own, shape, number, khat_in_words)
    output.show(found, lambda: "\n".join(lines))
    worst = worst_level(item["level"] for item in found.values())
    return {"good": 0, "warn": 1, "bad": 2}.get(worst, 0) if strict else 0


def _words(level: str) -> str:
    return {"good": "no problems found", "warn": "look at it", "bad": "FAILED"}.get(level, level)


def _told(
    quality: Any, own: Any, shape: tuple[float, float], number: Any, khat_in_words: Any
) -> Iterator[str]:
    yield from (f"  {sentence}" for sentence in quality.sentences)
    if own["problems"]:
        yield f"  {own['problems']}"
    if shape[0] == shape[0]:
        yield f"  k-hat of the approximation against its own target: {khat_in_words(*shape)}"
    for fact in own["facts"]:
        mark = {"warn": " (look at it)", "bad": " (failed)"}.get(fact["level"], "")
        yield f"  {fact['what']}: {number(fact['value'])}{mark}"
    yield ""
