"""What the site shows from outside docs/: documents of the root, notebooks, their thumbnails.

`write(folder)` makes the folder new; `conf.py` calls it before Sphinx looks for pages.
"""

import base64
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
DOCUMENTS = ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")
THUMBNAIL = (480, 300)  # pixels
CHOSEN = {"03": 1, "04": 0, "05": 0, "06": 2, "12": 1}  # which picture is shown; else the first


def write(folder: Path) -> None:
    """Write every page and picture that is made from another file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in DOCUMENTS:
        (folder / f"{name.lower()}.md").write_text(relinked((ROOT / f"{name}.md").read_text()))
    paths = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    for path in paths:
        shutil.copy(path, folder)
        (folder / f"{path.stem}.png").write_bytes(thumbnail(path))
    (folder / "gallery.md").write_text(gallery(paths))


def relinked(text: str) -> str:
    """Links of a document of the root, as they are from the folder of made pages."""
    text = re.sub(r"\]\(docs/", "](../", text)
    return re.sub(
        rf"\]\(({'|'.join(DOCUMENTS)})\.md", lambda found: f"]({found[1].lower()}.md", text
    )


def gallery(paths: list[Path]) -> str:
    """A card with picture, title and question for each notebook."""
    cards, entries = [], []
    for path in paths:
        first = "".join(json.loads(path.read_text())["cells"][0]["source"])
        title, _, rest = first.removeprefix("# ").partition("\n")
        words = " ".join(rest.split())
        asked = re.match(r"\*\*(.*?)\*\*", words)  # what the notebook answers, else how it begins
        sentence = asked[1] if asked else re.split(r"(?<=[.?!])\s", words, maxsplit=1)[0]
        cards.append(
            f":::{{grid-item-card}} {title}\n:link: {path.stem}\n:link-type: doc\n"
            f":img-top: {path.stem}.png\n\n{sentence}\n:::\n"
        )
        entries.append(path.stem)
    return (
        "# Notebooks\n\nEach can be run as it stands: `notebooks/` has the script and the notebook"
        " with its pictures, `make notebooks` runs them all.\n\n::::{grid} 1 2 3 3\n:gutter: 3\n\n"
        + "\n".join(cards)
        + "::::\n\n```{toctree}\n:hidden:\n\n"
        + "\n".join(entries)
        + "\n```\n"
    )


def pictures(notebook: dict[str, Any]) -> list[bytes]:
    """Every PNG of a notebook, in order."""
    outputs = [o for cell in notebook["cells"] for o in cell.get("outputs", [])]
    found = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    return [base64.b64decode("".join(data)) for data in found]


def thumbnail(path: Path) -> bytes:
    """A picture of a notebook, or of the report where it has none, on white."""
    from PIL import Image

    there = pictures(json.loads(path.read_text())) or [(NOTEBOOKS / "report.png").read_bytes()]
    with Image.open(io.BytesIO(there[CHOSEN.get(path.stem[:2], 0)])) as opened:
        picture = opened.convert("RGB")
    if picture.height > picture.width:  # the top of a page
        picture = picture.crop((0, 0, picture.width, picture.width * 5 // 8))
    picture.thumbnail(THUMBNAIL)
    canvas = Image.new("RGB", THUMBNAIL, "white")
    left, top = ((whole - part) // 2 for whole, part in zip(THUMBNAIL, picture.size, strict=True))
    canvas.paste(picture, (left, top))
    out = io.BytesIO()
    canvas.save(out, "PNG", optimize=True)
    return out.getvalue()
