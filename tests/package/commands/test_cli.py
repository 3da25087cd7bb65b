"""The command line: quick to answer, one line per error, JSON for machines, codes for scripts."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
from pages import few_parts
from synthetic_trees import gaussian_tree

import ardvark as av
from ardvark.commands import cli
from ardvark.commands.cli import main
from ardvark.errors import UnsupportedPair
from ardvark.inference.methods import METHODS

FEATURES = ["height", "weight", "age"]
COMMANDS = ("list", "fit", "report", "diagnose", "compare", "sbc", "replicate", "doctor")
MEAN, SD = np.array([0.1, 1.0, -0.5, 0.0]), np.array([0.2, 0.3, 0.3, 0.3])


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.fixture
def csv(tmp_path):
    rng = np.random.default_rng(6)
    X = 50 + 10 * rng.normal(size=(30, 3))
    sick = X[:, 0] + 10 * rng.normal(size=30) > 50
    rows = [
        ",".join([*(f"{v:.3f}" for v in x), "yes" if s else "no"])
        for x, s in zip(X, sick, strict=True)
    ]
    path = tmp_path / "people.csv"
    path.write_text("\n".join([",".join([*FEATURES, "sick"]), *rows]) + "\n")
    return path


@pytest.fixture
def fitted(monkeypatch):
    """Replace `fit` by synthetic answers; gives the list of what was asked for."""
    asked = []

    def fit(model, method, **settings):
        asked.append((model, method, settings))
        rng = np.random.default_rng(len(asked))
        common = {"features": FEATURES, "draws": 200, "rows": 30, "attrs": {"random_seed": 1}}
        if method == "laplace":
            return gaussian_tree(rng, MEAN, SD, hyper="evidence", **common)
        hyper = "posterior" if getattr(method, "hyper", "") is None else "fixed"
        return gaussian_tree(rng, MEAN, SD, method="nuts", hyper=hyper, **common)

    monkeypatch.setattr(av, "fit", fit, raising=False)
    return asked


# ---------------------------------------------------------------------------------- quick answers


@pytest.mark.parametrize("option", ["--help", "--version", "report --help"])
def test_help_imports_nothing_heavy(option):
    code = (
        "import sys; from ardvark.commands.cli import main; "
        f"rc = main({option.split()!r}); "
        "heavy = {'numpy', 'pymc', 'pandas', 'xarray', 'matplotlib', 'arviz_stats', 'scipy'}; "
        "sys.exit(rc or bool(heavy & set(sys.modules)))"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and not done.stderr


def test_help_names_every_command_and_option(capsys):
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(command in said for command in COMMANDS)
    assert main(["report", "--help"]) == 0
    said = capsys.readouterr().out
    options = (
        "--model --method --seed --draws --chains --out --target --raw --json --debug --strict"
    )
    assert all(option in said for option in options.split())


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == av.__version__


def test_list_knows_models_methods_and_data(capsys):
    assert main(["list", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert {"ard_classification", "ard_regression"} <= set(known["models"])
    assert {"laplace", "nuts"} <= set(known["methods"])
    assert {"wdbc", "wine", "sinc"} <= set(known["datasets"])
    assert main(["list"]) == 0
    assert "wdbc" in capsys.readouterr().out


def test_doctor_tells_versions_and_data_folders(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ARDVARK_DATA", f"{tmp_path}:/no/such/folder")
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["versions"]["ardvark"] == av.__version__ and facts["ready"] is True
    assert facts["ARDVARK_DATA"] == {str(tmp_path): "found", "/no/such/folder": "no such folder"}
    monkeypatch.setattr(cli, "PACKAGES", ["ardvark", "no-such-package"])
    assert main(["doctor"]) == 2
    assert "no-such-package: missing" in capsys.readouterr().out


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["report", "--method", "laplace,magic"],
            f"unknown method 'magic'; known: {', '.join(sorted(METHODS))}",
        ),
        (["report", "--model", "magic"], "unknown model 'magic'; known: ard_classification"),
        (["report", "no_such_data"], "no_such_data"),
        (["report", "no_such_file.csv"], "no_such_file.csv"),
        (["report", "--out", "no/such/folder/report.html"], "no folder"),
        (["report", "--draws", "many"], "--draws"),
        (["report", "--drwas", "3"], "--drwas"),
        (["magic"], "magic"),
        (["compare", "one.zarr"], "two or more trees"),
        (["compare", "one.zarr", "two.zarr"], "one.zarr: no such tree"),
        (["diagnose"], "diagnose needs a tree"),
        (["diagnose", "one.zarr"], "one.zarr: no such tree"),
        (["sbc", "magic"], "unknown model 'magic'"),
        (["sbc", "--method", "magic"], "unknown method 'magic'"),
        (["sbc", "--option", "link"], "expected name=value"),
        (["sbc", "ard_classification", "--replications", "0"], "replications"),
        (["replicate", "magic"], "unknown study 'magic'; known: chu2006, madelon"),
    ],
)
def test_an_error_is_one_line_and_exit_code_two(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err.splitlines()[-1] and captured.err.splitlines()[-1].startswith(
        "ardvark: "
    )
    assert "Traceback" not in captured.err and captured.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["fit", "report", "sbc"])
def test_a_bare_command_begins_nothing_and_says_what_to_type(
    command, capsys, tmp_path, monkeypatch
):
    """A bare `ardvark fit` started every method on wdbc."""

    def begun(*_, **__):
        raise AssertionError("something was begun")

    for name in ("fit", "sbc", "load"):
        monkeypatch.setattr(av, name, begun, raising=False)
    monkeypatch.chdir(tmp_path)
    assert main([command]) == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage.startswith(f"usage: ardvark {command} ")
    assert f"`ardvark {command} " in error and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("typed", "usage", "said"),
    [
        (
            "fit ard_classification wdbc",
            "usage: ardvark fit [DATA]",
            "Did you mean `ardvark fit wdbc --model ard_classification`?",
        ),
        (
            "report wdbc ep laplace --seed 3",
            "usage: ardvark report [DATA]",
            "Did you mean `ardvark report wdbc --method ep,laplace --seed 3`?",
        ),
        ("fit a.csv b.csv", "usage: ardvark fit [DATA]", "fit takes one data set"),
        ("fit ard_regression", "usage: ardvark fit [DATA]", "`ardvark fit DATA --model ard_regr"),
        ("fit wdbc --drwas 3", "usage: ardvark fit [DATA]", "Did you mean --draws?"),
        ("list all", "usage: ardvark list", "list: all was not expected"),
        ("ffit wdbc", "usage: ardvark COMMAND", 'Did you mean "fit"?'),
    ],
)
def test_wrong_words_show_the_usage_and_what_may_have_been_meant(typed, usage, said, capsys):
    """`ardvark fit MODEL DATA` said "Unused Tokens: ['DATA']" and no more."""
    assert main(typed.split()) == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith(usage) and said in last and "Unused Tokens" not in last


def test_others_are_quiet_unless_asked(csv, fitted, tmp_path, monkeypatch, capsys):
    """PyMC's "Sampling: [t]" and ArviZ's "We detected potential issues" stood among our lines."""
    import logging

    from ardvark.diagnostics.report import report as module

    handler = logging.StreamHandler()  # on standard error as it is now
    logger = logging.getLogger("pymc.example")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    normal = module.render

    def chatting(*given):
        logger.info("Sampling: [t]")
        logger.warning("We detected potential issues.")
        warnings.warn("of another package", UserWarning, stacklevel=1)
        return normal(*given)

    monkeypatch.setattr(module, "render", chatting)
    arguments = ["report", str(csv), "--method", "laplace", "--out", str(tmp_path / "a.html")]
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert "laplace: done" in said
    assert not any(word in said for word in ("Sampling", "We detected", "another package"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main([*arguments, "--debug"]) == 0
    logger.removeHandler(handler)
    assert "Sampling: [t]" in capsys.readouterr().err


def test_control_characters_do_not_reach_a_page(fitted, csv, tmp_path):
    """A name could steer the terminal, or turn the text of the page around."""
    strange = csv.with_name("peo\x1bple\u202e\x9b.csv")
    csv.rename(strange)
    out = tmp_path / "a.html"
    assert main(["report", str(strange), "--method", "laplace", "--out", str(out), "--quiet"]) == 0
    for path in (out, out.with_suffix(".json")):
        text = path.read_text("utf-8")
        assert "peo\\u001bple\\u202e\\u009b" in text
        assert not {"\x1b", "\u202e", "\x9b"} & set(text)
    numbers = json.loads(out.with_suffix(".json").read_text("utf-8"))
    assert numbers["header"]["Data set"] == strange.stem


def test_json_errors_are_json(capsys):
    assert main(["report", "--method", "magic", "--json"]) == 2
    assert "magic" in json.loads(capsys.readouterr().out)["error"]


def test_debug_shows_the_traceback():
    with pytest.raises(ValueError, match="unknown method"):
        main(["report", "--method", "magic", "--debug"])


def test_entry_point_sets_the_exit_code():
    done = subprocess.run(
        [sys.executable, "-m", "ardvark.commands.cli", "report", "--method", "magic"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and done.stderr.startswith("ardvark: unknown method")


# --------------------------------------------------------------------------------- report and fit


def test_report_of_a_csv_file(csv, fitted, tmp_path, capsys):
    out = tmp_path / "people.html"
    assert main(["report", str(csv), "--out", str(out), "--draws", "200", "--seed", "7"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(str(out))
    assert "nuts: fitting until its checks pass, at most 1600 draws a chain" in captured.err
    assert "nuts_fixed: done" in captured.err
    page = out.read_text("utf-8")
    assert "ardvark report" in page and "--model ard_classification" in page
    names = [m if isinstance(m, str) else type(m).__name__ for _, m, _ in fitted]
    assert names == ["laplace", "ep", "vb", "NUTS", "NUTS"]
    settings = fitted[-1][2]
    assert settings["random_seed"] == 7 and settings["draws"] == 200 and not settings["progressbar"]
    X = fitted[0][0]["X"].get_value()
    assert np.allclose(X.mean(axis=0), 0, atol=1e-9) and np.allclose(X.std(axis=0), 1, atol=0.05)


def test_short_chains_are_asked_for(csv, fitted, tmp_path, monkeypatch):
    from ardvark.diagnostics.report import report as report_module

    asked = []
    written = report_module.report
    monkeypatch.setattr(
        report_module, "report", lambda *a, **k: (asked.append(k), written(*a, **k))[1]
    )
    out = tmp_path / "short.html"
    options = ["--out", str(out), "--method", "laplace", "--quiet", "--taddaa"]
    assert main(["report", str(csv), *options]) == 0
    assert asked[0]["taddaa"] and asked[0]["command"].endswith(" --taddaa")


def test_report_as_json_is_quiet_and_raw_data_stay_raw(csv, fitted, tmp_path, capsys):
    out = tmp_path / "raw.html"
    code = main(["report", str(csv), "--method", "laplace", "--raw", "--json", "--out", str(out)])
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert code == 0 and captured.err == ""
    assert result["report"] == str(out) and result["level"] == "warn"  # no reference
    assert [method for _, method, _ in fitted] == ["laplace"]
    assert fitted[0][0]["X"].get_value().mean() > 30
    numbers = json.loads(out.with_suffix(".json").read_text("utf-8"))
    assert (
        numbers["header"]["Data set"] == "people"
        and "--raw" in numbers["reproducibility"]["command"]
    )


def test_a_default_method_that_refuses_the_model_is_left_out_and_told(
    csv, fitted, tmp_path, monkeypatch, capsys
):
    normal, refusing = av.fit, {"vb"}

    def fit(model, method, **settings):
        if (method if isinstance(method, str) else type(method).__name__.lower()) in refusing:
            raise UnsupportedPair(f"{method} cannot: ask another.")
        return normal(model, method, **settings)

    monkeypatch.setattr(av, "fit", fit, raising=False)
    out = tmp_path / "people.html"
    assert main(["report", str(csv), "--out", str(out)]) == 0
    assert "vb: left out. vb cannot" in capsys.readouterr().err
    assert "vb (vb cannot: ask another.)" in out.read_text("utf-8")
    assert main(["fit", str(csv), "--out", str(tmp_path / "run"), "--json"]) == 0
    assert "vb cannot" in json.loads(capsys.readouterr().out)["vb"]["left_out"]
    assert not (tmp_path / "run" / "vb.zarr").exists()
    assert main(["fit", str(csv), "--method", "vb", "--out", str(tmp_path / "asked")]) == 2
    assert "vb cannot" in capsys.readouterr().err  # what was asked for by name is an error
    refusing |= {"laplace", "ep", "nuts"}
    assert main(["fit", str(csv), "--out", str(tmp_path / "none")]) == 2
    assert "no default method fits this model" in capsys.readouterr().err


def test_several_classes_have_a_default_model_with_a_method_of_its_own(
    monkeypatch, tmp_path, capsys
):
    asked = []

    def fit(model, method, **settings):
        asked.append(method)
        raise UnsupportedPair("enough seen")

    monkeypatch.setattr(av, "fit", fit, raising=False)
    assert main(["report", "wine", "--out", str(tmp_path / "wine.html")]) == 2
    assert asked == ["reversible_jump"]
    assert "model rbf_mixture" in capsys.readouterr().err


def test_strict_turns_warnings_into_exit_codes(csv, fitted, tmp_path, monkeypatch, capsys):
    arguments = ["report", str(csv), "--method", "laplace", "--quiet", "--strict"]
    arguments += ["--out", str(tmp_path / "a.html")]
    assert main(arguments) == 1
    normal = av.fit

    def unconverged(*args, **settings):
        tree = normal(*args, **settings)
        tree.attrs["converged"] = False
        return tree

    monkeypatch.setattr(av, "fit", unconverged, raising=False)
    few_parts(monkeypatch, "verdict")
    assert main(arguments) == 2
    assert main([a for a in arguments if a != "--strict"]) == 0


def test_fit_stores_trees_that_compare_reads(csv, fitted, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["fit", str(csv), "--out", str(run), "--json"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert sorted(stored) == ["ep", "laplace", "nuts", "vb"]
    names = sorted(path.name for path in run.iterdir())
    assert names == ["ep.zarr", "laplace.zarr", "nuts.zarr", "run.json", "vb.zarr"]
    assert main(["compare", str(run / "laplace.zarr"), str(run / "nuts.zarr"), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["laplace"]["reference"] == "nuts"
    assert table["laplace"]["worst_mean_error"] < 0.5
    assert table["laplace"]["verdict"].startswith("laplace: means within")
    assert main(["fit", str(csv), "--out", str(run), "--seed", "2"]) == 2
    assert "exists and answers another question" in capsys.readouterr().err


def test_a_set_with_one_split_is_fitted_on_its_training_rows(fitted, tmp_path, capsys):
    assert main(["fit", "ripley", "--method", "laplace", "--out", str(tmp_path / "run")]) == 0
    data = av.load("ripley")
    assert fitted[0][0]["X"].get_value().shape == (len(data.splits[0].train), 2)
    assert len(data.splits[0].train) < len(data.X)
    assert "ripley (training rows)" in capsys.readouterr().err
