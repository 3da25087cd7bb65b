"""Reports without most of their parts, for tests of what stands around a page."""

VERDICT = {"sentence": "", "lead": "", "level": "good"}


def few_parts(monkeypatch, *kept):
    """Leave only these parts of a report, and of the page nothing; "verdict" has to be in it."""
    from ardvark.diagnostics.report import report as module

    parts = {"verdict": lambda _: VERDICT} | {name: module.PARTS[name] for name in kept}
    monkeypatch.setattr(module, "PARTS", parts)
    monkeypatch.setattr(module, "render", lambda *_: "page")
