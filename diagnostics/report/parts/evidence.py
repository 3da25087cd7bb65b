"""The part "Evidence": every estimate of it side by side, and whether they agree."""

from typing import Any

from ardvark.diagnostics.compare.evidence import evidence, evidence_findings
from ardvark.diagnostics.finding import worst_level
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.words import as_sentences, records

__all__ = ["evidence_part"]


def evidence_part(case: Case) -> dict[str, Any]:
    """Collect the numbers of the part."""
    table = evidence(case.trees, case.model)
    notes = list(table.attrs["notes"])
    if case.model is None:
        notes.append("No model was given: no bridge sampling from the samplers' draws.")
    if table.empty:
        sentence = "No method among the trees has an evidence."
        return {"sentence": sentence, "level": "", "estimates": [], "notes": notes}
    said = evidence_findings(table)
    return {
        **as_sentences(str(said[0]), said[1:]),
        "level": worst_level(found.level for found in said),
        "estimates": records(table),
        "notes": notes,
    }
