"""Commands that check, runs that go on after a kill, and damaged files."""

import json
import pickle
import sys
import warnings

import numpy as np
import pytest
import xarray as xr
from pages import few_parts
from synthetic_trees import gaussian_tree

import ardvark as av
from ardvark.commands.checks import model_on
from ardvark.commands.cli import main
from ardvark.commands.studies import PAPERS, STUDIES, Study
from ardvark.diagnostics.storage.trees import read_tree, trees_in
from ardvark.studies import experiments

FEATURES = ["height", "weight", "age"]
MEAN, SD = np.array([0.1, 1.0, -0.5, 0.0]), np.array([0.2, 0.3, 0.3, 0.3])


def keep(tree, path, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns of text, which other readers may not know
        tree.to_zarr(path, **settings)


@pytest.fixture
def csv(tmp_path):
    rng = np.random.default_rng(6)
    X = 50 + 10 * rng.normal(size=(30, 3))
    sick = X[:, 0] + 10 * rng.normal(size=30) > 50
    rows = [",".join([*(f"{v:.3f}" for v in x), str(int(s))]) for x, s in zip(X, sick, strict=True)]
    path = tmp_path / "people.csv"
    path.write_text("\n".join([",".join([*FEATURES, "sick"]), *rows]) + "\n")
    return path


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(7)
    home = tmp_path / "trees"
    for name in ("laplace", "nuts"):
        tree = gaussian_tree(rng, MEAN, SD, method=name, features=FEATURES, draws=400)
        keep(tree, home / f"{name}.zarr")
    return home


# -------------------------------------------------------------------------------------------- sbc


def test_sbc_tells_calibration_and_goes_on(tmp_path, capsys):
    out = tmp_path / "sbc"
    arguments = ["sbc", "ard_regression", "--method", "laplace", "--replications", "60"]
    arguments += ["--option", "noise=1.0", "--rows", "25", "--inputs", "2", "--out", str(out)]
    assert main([*arguments, "--json", "--strict"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["calibrated"] and first["replications"] == 60 and first["failed"] == 0
    assert {"bias", "w[x0]", "log_likelihood"} <= set(first["quantities"])
    (out / "000030.json").unlink()
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "uniformity_p" in captured.out and "replications: 60" in captured.out
    assert main([*arguments, "--seed", "2"]) == 2
    assert "another run: random_seed" in capsys.readouterr().err


def test_sbc_is_strict_about_what_is_not_calibrated(capsys):
    arguments = ["sbc", "ard_classification", "--method", "vb", "--replications", "250"]
    assert main([*arguments, "--rows", "30", "--inputs", "2", "--strict", "--quiet"]) == 1
    assert "False" in capsys.readouterr().out


def test_the_inputs_of_a_data_set_can_be_taken():
    model = model_on("ard_classification", 9, 9, "wdbc", {"link": "logit"})
    assert model["X"].get_value().shape == (569, 30)


# --------------------------------------------------------------------------------------- diagnose


def test_diagnose_says_what_each_tree_tells(folder, capsys):
    assert main(["diagnose", str(folder), "--strict"]) == 0
    said = capsys.readouterr().out
    assert "laplace, no problems found" in said and "nuts, no problems found" in said
    assert "The chains agree" in said
    assert main(["diagnose", str(folder / "nuts.zarr"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (tree,) = found.values()
    assert tree["level"] == "good" and tree["draws"]["max_rhat"] < 1.01


def test_diagnose_is_strict_about_chains_that_do_not_mix(tmp_path, capsys):
    rng = np.random.default_rng(8)
    tree = gaussian_tree(rng, MEAN, SD, method="nuts", draws=200, autocorrelation=0.98)
    keep(tree, tmp_path / "slow.zarr")
    assert main(["diagnose", str(tmp_path / "slow.zarr"), "--strict"]) == 2
    assert "FAILED" in capsys.readouterr().out
    assert main(["diagnose", str(tmp_path / "slow.zarr")]) == 0


# ------------------------------------------------------------------------------------ fit, report


def test_fit_goes_on_where_it_was_and_a_folder_is_reported(csv, tmp_path, monkeypatch, capsys):
    run, asked = tmp_path / "run", []
    real = av.fit

    def killed(model, method, **settings):
        asked.append(method)
        if method == "vb":
            raise RuntimeError("killed")
        return real(model, method, **settings)

    arguments = ["fit", str(csv), "--method", "laplace,vb,ep", "--out", str(run), "--draws", "100"]
    monkeypatch.setattr(av, "fit", killed, raising=False)
    assert main(arguments) == 2
    assert sorted(p.name for p in run.iterdir()) == ["laplace.zarr", "run.json"]  # at once
    monkeypatch.setattr(av, "fit", real, raising=False)
    capsys.readouterr()
    assert main(arguments) == 0
    assert "laplace: already there" in capsys.readouterr().err
    assert main([*arguments, "--json"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert [tree["new"] for tree in stored.values()] == [False] * 3
    again = tmp_path / "again"
    assert main([*arguments[:4], "--out", str(again), "--draws", "100", "--quiet"]) == 0
    for name in ("laplace", "vb"):
        one, two = read_tree(run / f"{name}.zarr"), read_tree(again / f"{name}.zarr")
        assert one["posterior"].equals(two["posterior"])
    capsys.readouterr()

    page = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(page), "--json"]) == 0
    numbers = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert numbers["header"]["Data set"] == "people"
    assert numbers["header"]["Methods"] == "ep, laplace, vb"
    assert numbers["data"]["model"] is not None
    few_parts(monkeypatch)
    csv.unlink()  # without the data the trees are reported alone
    assert main(["report", str(run), "--out", str(page), "--quiet"]) == 0
    (run / "run.json").write_text("{")
    assert main(["report", str(run), "--out", str(page)]) == 2
    assert "run.json: damaged" in capsys.readouterr().err


def test_a_report_of_an_empty_folder_says_what_is_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing").mkdir()
    assert main(["report", "nothing"]) == 2
    assert "there is no tree (*.zarr) in it" in capsys.readouterr().err


# -------------------------------------------------------------------------------------- replicate


def test_every_study_of_the_table_exists_and_takes_its_arguments(capsys):
    from importlib.util import find_spec

    assert all(find_spec(f"ardvark.studies.{study.module}") for study in STUDIES.values())
    assert list(PAPERS) == list(experiments.PAPERS)
    assert main(["replicate", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == PAPERS.keys() | STUDIES.keys()
    assert main(["replicate"]) == 0
    assert "qi2004: " in capsys.readouterr().out


def test_options_of_the_table_are_those_of_the_studies():
    from importlib.util import find_spec
    from pathlib import Path

    for name, study in STUDIES.items():
        spec = find_spec(f"ardvark.studies.{study.module}")
        file = "__main__.py" if spec.submodule_search_locations else ""  # of a package
        source = (Path(spec.origin).parent / (file or Path(spec.origin).name)).read_text("utf-8")
        for option in {a for a in study.whole + study.quick if a.startswith("--")}:
            known = f'"{option}"' in source or f'"{option[2:]}": ' in source
            assert known, (name, option)


STUDY = """
import sys
if __name__ == "__main__":
    print('{"error": 0.1}')
    print("plain words", *sys.argv[1:])
    sys.exit(int(sys.argv[-1]))
"""


def test_a_study_is_run_with_its_lines_as_json(monkeypatch, tmp_path, capsys):
    import ardvark.studies

    (tmp_path / "example.py").write_text(STUDY)
    monkeypatch.setattr(ardvark.studies, "__path__", [str(tmp_path)])
    monkeypatch.setitem(STUDIES, "example", Study("example", "", ["--rows", "3"], ["--rows", "0"]))
    assert main(["replicate", "example", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["example"] == {"exit_code": 0, "lines": [{"error": 0.1}, "plain words --rows 0"]}
    assert main(["replicate", "example", "--list"]) == 0  # says how, and runs nothing
    assert capsys.readouterr().out == "example  python -m ardvark.studies.example --rows 3\n"
    before = list(sys.argv)
    assert main(["replicate", "example"]) == 2
    said = capsys.readouterr()
    assert "plain words --rows 3" in said.out and "example ended with 3" in said.err
    assert sys.argv == before
    (tmp_path / "example.py").write_text("raise KeyError('what went wrong')")
    assert main(["replicate", "example"]) == 2
    said = capsys.readouterr().err
    assert "what went wrong" in said and "example ended with 1" in said


# ------------------------------------------------------------------------------- damaged files


class Mark:
    """Leaves a mark wherever it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def hostile_store(path, mark):
    """A tree whose weights are stored by numcodecs.Pickle, in the old format."""
    rng = np.random.default_rng(9)
    keep(gaussian_tree(rng, MEAN, SD, draws=4), path, zarr_format=2, consolidated=False)
    place = path / "posterior" / "evil"
    place.mkdir()
    codec = {"id": "pickle", "protocol": 5}
    header = {
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "compressor": None,
        "fill_value": "", "order": "C", "filters": [{"id": "vlen-utf8"}, codec],
    }  # fmt: skip
    (place / ".zarray").write_text(json.dumps(header))
    (place / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": ["one"]}))
    (place / "0").write_bytes(pickle.dumps(Mark(mark)))


def test_a_hostile_tree_is_refused_and_nothing_of_it_runs(tmp_path, capsys):
    mark, path = tmp_path / "mark", tmp_path / "hostile.zarr"
    hostile_store(path, mark)
    with pytest.raises(av.errors.InputError, match=r"evil.*'pickle'.*could run code"):
        read_tree(path)
    assert main(["diagnose", str(path)]) == 2 and main(["compare", str(path), str(path)]) == 2
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "a.html")]) == 2
    assert "could run code" in capsys.readouterr().err
    assert not mark.exists()
    # the control: it is hostile
    pickle.loads((path / "posterior" / "evil" / "0").read_bytes()).close()
    assert mark.exists()


def test_damaged_trees_are_named(folder, tmp_path):
    (folder / "laplace.zarr" / "zarr.json").write_text("{")
    with pytest.raises(av.errors.InputError, match=r"laplace\.zarr.*no JSON"):
        read_tree(folder / "laplace.zarr")
    chunk = next(
        p
        for p in (folder / "nuts.zarr" / "posterior" / "w").rglob("*")
        if p.is_file() and p.name != "zarr.json"
    )
    chunk.write_bytes(b"\x00\x01")
    with pytest.raises(av.errors.InputError, match=r"nuts\.zarr: the tree is damaged"):
        read_tree(folder / "nuts.zarr")
    (tmp_path / "text.zarr").write_text("no tree")
    with pytest.raises(av.errors.InputError, match="no zarr tree"):
        read_tree(tmp_path / "text.zarr")
    keep(xr.DataTree.from_dict({"prior": xr.Dataset({"w": 1.0})}), tmp_path / "prior.zarr")
    with pytest.raises(av.errors.InputError, match="no posterior"):
        read_tree(tmp_path / "prior.zarr")
    with pytest.raises(av.errors.InputError, match="there is no tree"):
        trees_in(tmp_path / "folder_of_none")
