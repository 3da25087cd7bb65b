"""From parts to a page: figures, templates, and files that are never half written."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ardvark.diagnostics.compare.reference import moving_parameters
from ardvark.diagnostics.compare.verdict import (
    MEAN_ERROR_LIMITS,
    SD_RATIO_GOOD,
    khat_in_words,
    khat_level,
    mean_level,
    sd_level,
)
from ardvark.diagnostics.plots import report as figures
from ardvark.diagnostics.reading import installed
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.parts.calibration import calibration_figures
from ardvark.diagnostics.report.parts.closeness import densities_figure
from ardvark.diagnostics.report.parts.convergence import convergence_figures
from ardvark.diagnostics.report.parts.loo import loo_figure
from ardvark.diagnostics.report.parts.predictions import predictions_figures
from ardvark.diagnostics.report.parts.relevance import relevance_figure
from ardvark.diagnostics.storage.atomic import replacing, try_target
from ardvark.diagnostics.words import duration, listed, mean_and_sd, number, visible
from ardvark.errors import InputError
from ardvark.inference.samplers.convergence import BFMI_MIN, ESS_PER_CHAIN, RHAT_MAX

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment

__all__ = ["Part", "check_target", "environment", "ranked_weights", "render", "write"]

type Part = dict[str, Any]

SHOWN = 40  # more rows than this are no figure any more
SHOWN_INPUTS = 15  # the table beside the figure has more
TITLES = {
    "verdict": "Verdict",
    "data": "Data and model",
    "reference": "Is the reference trustworthy?",
    "relevance": "Relevance of the inputs",
    "closeness": "How close are the approximations?",
    "convergence": "Own convergence of each method",
    "predictions": "Predictions",
    "loo": "Leave one out",
    "evidence": "Evidence",
    "sensitivity": "Prior sensitivity",
    "calibration": "Calibration record of this model",
    "reproducibility": "Reproducibility",
}


@cache
def _compiled() -> "BytecodeCache":
    """What the templates were compiled to, for all reports of a process."""
    from jinja2 import BytecodeCache

    kept: dict[tuple[str, str], Any] = {}

    class Compiled(BytecodeCache):
        def load_bytecode(self, bucket: Any) -> None:
            bucket.code = kept.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket: Any) -> None:
            kept[bucket.key, bucket.checksum] = bucket.code

    return Compiled()


def environment() -> "Environment":
    """Templates of this folder, in which every value is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("ardvark.diagnostics.report"),
        autoescape=True,
        bytecode_cache=_compiled(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: list[Any] = [mean_level, sd_level, khat_level, khat_in_words, number, duration]
    filters += [listed, mean_and_sd]
    templates.filters |= {function.__name__: function for function in filters}
    return templates


def render(case: Case, header: Mapping[str, str], parts: Mapping[str, Part], numbers: str) -> str:
    """Fill the templates; a figure or a section that fails becomes a visible note."""
    templates = environment()
    drawings = _drawings(case)

    def figure(name: str, label: str) -> dict[str, str]:
        try:
            identifier = f"figure-{list(drawings).index(name)}"
            return {"svg": figures.as_svg(drawings[name](), identifier, label)}
        except Exception as error:
            return {"failed": f"The figure “{name}” could not be drawn: {error!r}"}

    templates.globals |= {
        "case": case,
        "titles": TITLES | ({"relevance": "Relevance of the weights"} if case.users_own else {}),
        "drawings": drawings,
        "figure": figure,
        "limits": {"rhat": RHAT_MAX, "ess": ESS_PER_CHAIN, "bfmi": BFMI_MIN},
        "shown": SHOWN,
        "drawn": SHOWN_INPUTS,
    }
    return templates.get_template("report.html.j2").render(
        header=header,
        parts=parts,
        bodies={name: _body(templates, name, part) for name, part in parts.items()},
        untrusted=case.untrusted,
        numbers=numbers,
        version=installed("ardvark"),
    )


def _body(templates: "Environment", name: str, part: Part) -> str:
    """Render a section below its sentence; if that fails, show why."""
    try:
        template = templates.get_template(f"{name}.html.j2")
        return "" if "failed" in part else str(template.render(part=part))
    except Exception as error:
        note = '<p class="note failed">▲ This section could not be shown: {{ why }}</p>'
        return str(templates.from_string(note).render(why=repr(error)))


def _drawings(case: Case) -> dict[str, Callable[[], Any]]:
    """Return the figures of the page by name, each still to be drawn."""
    traced = [name for name in case.references if name in (case.reference, *case.untrusted)]
    chains = [name for name in traced if name in case.worst]
    drawings: dict[str, Callable[[], Any]] = {
        "relevance": lambda: relevance_figure(case, SHOWN_INPUTS),
        "forest": lambda: figures.forest(case.summaries, ranked_weights(case)[:SHOWN_INPUTS]),
        "closeness": lambda: figures.closeness(
            [(n, j, case.differences[n, j]) for n, j in case.like.items()],
            order=list(case.summaries),
            tolerance=MEAN_ERROR_LIMITS[0],
            sd_limits=SD_RATIO_GOOD,
        ),
        **convergence_figures(case),
        **predictions_figures(case),
        **calibration_figures(case),
    }
    drawings["loo"] = lambda: loo_figure(case)
    for reference in dict.fromkeys(case.like.values()):
        drawings[f"densities against {reference}"] = partial(densities_figure, case, reference)
    return drawings | {f"traces of {n}": lambda n=n: _trace(case, n) for n in chains}


def ranked_weights(case: Case) -> list[str]:
    """Order the weights by relevance under the reference; scalars (the bias) come last."""
    leader = case.summaries[case.reference or next(iter(case.trees))]
    ranked = leader.sort_values("relevance", ascending=False, kind="stable").index
    return [*(n for n in ranked if "[" in n), *(n for n in ranked if "[" not in n)]


def _trace(case: Case, name: str) -> Any:
    names, draws = moving_parameters(case.trees[name])
    worst = list(case.worst[name].index[:4])
    return figures.traces({label: draws[:, :, names.index(label)] for label in worst})


def check_target(target: Path) -> None:
    """See that a page and its numbers can be written, before the work that ends in them."""
    if target.suffix not in (".html", ".htm"):
        raise InputError(f"path: expected a name that ends in .html, found {target.name!r}")
    if not target.absolute().parent.is_dir():
        raise InputError(f"path: there is no folder {str(target.parent)!r}")
    for path in (target, target.with_suffix(".json")):
        try_target(path)


def write(files: Mapping[Path, str]) -> None:
    """Write all under temporary names, then rename: readers see the old files or the new ones."""
    with ExitStack() as renamed:
        for path, text in files.items():
            temporary = renamed.enter_context(replacing(path, len(text)))
            temporary.write_text(visible(text), encoding="utf-8")
