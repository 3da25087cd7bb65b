"""Draw the graph of every model: `python docs/draw_graphs.py` (needs Graphviz's `dot`).

The pictures are kept in docs/models/graphs, so that the site can be built without `dot`. Run it
again when a builder changes its variables: a test compares their names.
"""

import re
import sys
from pathlib import Path

import pymc as pm

from ardvark.models.registry import MODELS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from model_variants import builder, samples

HERE = Path(__file__).resolve().parent
GRAPHS = HERE / "models" / "graphs"


def main() -> None:
    """Write one SVG for each model, built on its sample data."""
    GRAPHS.mkdir(exist_ok=True)
    for name in MODELS:
        _, arguments = next(iter(samples(name)))
        drawing = pm.model_to_graphviz(builder(name)(**arguments))
        drawing.attr(bgcolor="transparent")
        text = drawing.pipe(format="svg", encoding="utf-8")
        text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)  # no version, no node numbers
        (GRAPHS / f"{name}.svg").write_text(text)


if __name__ == "__main__":
    main()
