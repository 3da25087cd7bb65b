"""The directive `methods-of MODEL`: which methods fit it, and why the others do not."""

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PAGES = {
    "laplace": "laplace",
    "ep": "ep",
    "vb": "vb",
    "exact": "exact",
    "nuts": "nuts",
    "smc": "smc",
    "elliptical_slice": "elliptical_slice",
    "reversible_jump": "reversible_jump",
}


def lines(model: str) -> list[str]:
    """Markdown from the registry of the models."""
    from ardvark.inference.methods import METHODS
    from ardvark.models.registry import MODELS

    entry = MODELS[model]
    link = {name: f"[`{name}`](../methods/{PAGES[name]}.md)" for name in METHODS}
    text = [f"Fitted by {', '.join(link[name] for name in METHODS if name in entry.methods)}.", ""]
    return text + [
        f"- {link[name]} is refused: {entry.reasons[name]}"
        for name in METHODS
        if name not in entry.methods
    ]


class MethodsOf(SphinxDirective):
    """Put the methods of a model into the page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the lines as Markdown where the directive stands."""
        box = nodes.container()
        text = StringList(lines(self.arguments[0]), self.env.docname)
        self.state.nested_parse(text, 0, box)
        return [box]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("methods-of", MethodsOf)
    return {"parallel_read_safe": True}
