"""The data door: simulators by their formulas, files, frames and downloads, and their refusals."""

import dataclasses
import functools
import hashlib
import http.server
import io
import json
import os
import threading
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.io
import sklearn.datasets

from ardvark.errors import InputError, InputWarning
from ardvark.models.data import datasets as door
from ardvark.models.data import download, simulators
from ardvark.models.data.dataset import Dataset, infer_task
from ardvark.models.data.datasets import datasets, load
from ardvark.models.data.files import named_files
from ardvark.models.data.simulators import SIMULATORS
from ardvark.models.inputs import Inputs, standardise

RNG = np.random.default_rng(22)
FILES = {  # rows, inputs, number of splits, task, as the collection's own table has them
    "abalone": (4177, 8, 0, "regression"),
    "auto_mpg": (392, 7, 0, "regression"),
    "bodyfat": (252, 14, 0, "regression"),
    "boston": (506, 13, 0, "regression"),
    "colon_alon": (62, 2000, 0, "binary"),
    "cpusmall": (8192, 12, 0, "regression"),
    "crabs": (200, 5, 0, "binary"),
    "ionosphere": (351, 34, 1, "binary"),
    "leukaemia_golub": (72, 7129, 1, "binary"),
    "madelon": (2600, 500, 1, "binary"),
    "raetsch_banana": (5300, 2, 10, "binary"),
    "raetsch_breast_cancer": (277, 9, 10, "binary"),
    "raetsch_diabetes": (768, 8, 1, "binary"),
    "raetsch_flare_solar": (1066, 9, 0, "binary"),
    "raetsch_german": (1000, 20, 10, "binary"),
    "raetsch_image": (2310, 18, 10, "binary"),
    "raetsch_splice": (3175, 60, 0, "binary"),
    "raetsch_titanic": (2201, 3, 10, "binary"),
    "raetsch_twonorm": (7400, 20, 1, "binary"),
    "raetsch_waveform": (5000, 21, 10, "binary"),
    "ripley_pima": (532, 7, 1, "binary"),
    "ripley_synth": (1250, 2, 1, "binary"),
    "triazines": (186, 60, 0, "regression"),
    "usps": (9298, 256, 1, "multiclass"),
}
COLLECTION = os.environ.get("ARDVARK_DATA", "")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No test sees the user's folders unless it asks for them."""
    monkeypatch.delenv("ARDVARK_DATA", raising=False)
    monkeypatch.setenv("ARDVARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def collection(monkeypatch):
    if not COLLECTION:
        pytest.skip("ARDVARK_DATA is not set: the collection of .npz files is not at hand")
    monkeypatch.setenv("ARDVARK_DATA", COLLECTION)


def load_file(name):
    if name not in dict(named_files()):
        pytest.skip(f"{name}.npz is in no folder of ARDVARK_DATA")
    return load(name)


# --- embedded ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "counts"),
    [("wine", (178, 13), [59, 71, 48]), ("wdbc", (569, 30), [212, 357])],
)
def test_embedded_sets(name, shape, counts):
    data = load(name)
    assert data.X.shape == shape and np.bincount(data.t).tolist() == counts
    assert isinstance(data.X, Inputs) and data.feature_names == data.X.feature_names
    assert data.source and data.licence and data.description


def test_a_dataset_has_a_short_repr_and_is_frozen():
    data = load("wine")
    assert repr(data) == "Dataset('wine': multiclass, 178 rows, 13 inputs, 3 classes)"
    assert repr(load("sinc")) == "Dataset('sinc': regression, 1100 rows, 1 inputs, 1 split)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"


def test_a_dataset_is_standardised_as_a_whole():
    data = load("ripley")
    train = data.splits[0].train
    scaled = standardise(data, rows=train)
    assert isinstance(scaled, Dataset) and scaled.t is data.t
    assert np.allclose(scaled.X[train].mean(axis=0), 0, atol=1e-14)
    assert scaled.X.scaling.same_as(scaled.X[train].scaling)


# --- simulators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIMULATORS)
def test_simulators_are_determined_by_their_seed(name):
    first, again, other = load(name, seed=3), load(name, seed=3), load(name, seed=4)
    assert np.array_equal(first.X, again.X) and np.array_equal(first.t, again.t)
    assert not np.array_equal(first.X, other.X)


@pytest.mark.parametrize("name", SIMULATORS)
def test_training_rows_come_first_and_do_not_depend_on_the_test_rows(name):
    data, short = load(name, seed=1), load(name, seed=1, n_test=0)
    (split,) = data.splits
    assert short.splits == ()
    assert np.array_equal(data.X[split.train], short.X)
    assert np.array_equal(data.t[split.train], short.t)
    assert len(split.train) + len(split.test) == len(data.X)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("ripley", (250, 1000, 2)),
        ("sinc", (100, 1000, 1)),
        ("friedman1", (240, 1000, 10)),
        ("friedman2", (240, 1000, 4)),
        ("friedman3", (240, 1000, 4)),
        ("qi_synthetic", (30, 5000, 200)),
        ("additive", (100, 2000, 10)),
        ("sin2d", (100, 2000, 10)),
    ],
)
def test_default_sizes(name, sizes):
    data = load(name)
    assert (len(data.splits[0].train), len(data.splits[0].test), data.X.shape[1]) == sizes
    assert data.task == SIMULATORS[name].task


@pytest.mark.parametrize("name", [name for name in SIMULATORS if load(name).task == "regression"])
def test_noise_is_gaussian_of_the_stated_size(name):
    noise, n = 0.7, 4000
    data = load(name, n=n, n_test=0, noise=noise, seed=5)
    error = data.t - data.truth["signal"]
    assert abs(error.mean()) < 4 * noise / n**0.5
    assert abs(error.std() - noise) < 4 * noise / (2 * n) ** 0.5
    clean = load(name, n=50, noise=0)
    assert np.array_equal(clean.t, clean.truth["signal"])


def test_ripley_has_its_bayes_error():
    def density(grid, label):
        squares = ((grid[..., None, :] - simulators.RIPLEY_MEANS[label]) ** 2).sum(axis=-1)
        return np.exp(-squares / 0.06).sum(axis=-1) / (4 * np.pi * 0.03)

    step = 0.01
    axis = np.arange(-2.0, 2.0, step)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    exact = 0.5 * np.minimum(density(grid, 0), density(grid, 1)).sum() * step**2
    assert abs(exact - 0.0893) < 1e-4
    n = 40_000
    data = load("ripley", n=n, n_test=0, seed=6)
    wrong = (data.truth["signal"] > 0.5) != data.t
    assert abs(wrong.mean() - exact) < 4 * (exact * (1 - exact) / n) ** 0.5
    assert np.bincount(data.t).tolist() == [n // 2, n // 2]
    for label in (0, 1):
        mean, sd = data.X[data.t == label].mean(axis=0), data.X[data.t == label].std(axis=0)
        expected = simulators.RIPLEY_MEANS[label].mean(axis=0)
        assert (abs(mean - expected) < 4 * sd / (n / 2) ** 0.5).all()


def test_ripley_is_the_distribution_of_his_own_rows(collection):
    own = load_file("ripley_synth")
    for label in (0, 1):
        rows = np.asarray(own.X[own.t == label])
        squares = ((rows[:, None] - simulators.RIPLEY_MEANS[label]) ** 2).sum(axis=-1)
        nearest = squares.min(axis=1)
        twin = load("ripley", n=20_000, n_test=0, seed=7)
        twin_rows = np.asarray(twin.X[twin.t == label])
        twin_squares = ((twin_rows[:, None] - simulators.RIPLEY_MEANS[label]) ** 2).sum(axis=-1)
        expected = twin_squares.min(axis=1)
        for found, drawn in ((rows, twin_rows), (nearest[:, None], expected[:, None])):
            error = drawn.std(axis=0) * (1 / len(found) + 1 / len(drawn)) ** 0.5
            assert (abs(found.mean(axis=0) - drawn.mean(axis=0)) < 4 * error).all()


def test_ripley_with_irrelevant_inputs():
    data = load("ripley", irrelevant=8)
    assert data.X.shape[1] == 10 and data.truth["relevant"].tolist() == [0, 1]


def test_sinc_by_its_formula():
    data = load("sinc", noise=0)
    x = data.X[:, 0]
    assert x.min() >= -10 and x.max() <= 10
    assert np.allclose(data.t, np.sin(np.abs(x)) / np.abs(x), rtol=1e-12)


class Uniforms(np.random.RandomState):
    """Hands out the uniform numbers it was given."""

    table: np.ndarray

    def uniform(self, size):
        assert size == self.table.shape
        return self.table.copy()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_friedman_agrees_with_scikit_learn(number):
    data = load(f"friedman{number}", n=500, n_test=0, noise=0)
    low = [0, 40 * np.pi, 0, 1] if number > 1 else 0
    width = [100, 520 * np.pi, 1, 10] if number > 1 else 1
    source = Uniforms(0)
    source.table = (np.asarray(data.X) - low) / width
    assert source.table.min() >= 0 and source.table.max() <= 1
    make = getattr(sklearn.datasets, f"make_friedman{number}")
    X, t = make(n_samples=500, noise=0.0, random_state=source)
    assert np.allclose(X, data.X, rtol=1e-12)
    assert np.allclose(t, data.t, rtol=1e-9)


def test_qi_synthetic_is_separable_by_ten_weights():
    data = load("qi_synthetic", seed=2)
    weights = data.truth["weights"]
    assert np.flatnonzero(weights).tolist() == list(range(10))
    assert np.array_equal(data.t, (data.X @ weights > 0).astype(int))
    others = [load("qi_synthetic", seed=seed, n_test=0) for seed in range(90)]
    drawn = np.array([other.truth["weights"][:10] for other in others])
    assert abs(drawn.mean() + 0.5) < 4 / 900**0.5
    assert abs(drawn.std() - 1) < 4 / 1800**0.5


def test_qi_synthetic_with_noise_has_its_probabilities():
    data = load("qi_synthetic", n=4000, n_test=0, noise=2.0, d=12)
    p = data.truth["signal"]
    assert ((p > 0) & (p < 1)).all()
    assert abs((data.t - p).sum()) < 4 * (p * (1 - p)).sum() ** 0.5
    assert abs(((data.t - p) * p).sum()) < 4 * (p**3 * (1 - p)).sum() ** 0.5


def test_additive_and_sin2d_by_their_formulas():
    data = load("additive", noise=0)
    x1, x2, x3, x4, x5 = data.X[:, :5].T
    expected = 0.1 * np.exp(4 * x1) + 4 / (1 + np.exp(-20 * (x2 - 0.5))) + 3 * x3 + 2 * x4 + x5
    assert np.allclose(data.t, expected, rtol=1e-12)
    assert data.X[:, :5].min() >= 0 and data.X[:, :5].max() <= 1
    assert data.X[:, 5:].min() < -1 and data.truth["relevant"].tolist() == [0, 1, 2, 3, 4]
    data = load("sin2d", noise=0)
    assert np.allclose(data.t, np.sin(data.X[:, 0]) + 0.1 * data.X[:, 1], rtol=1e-12)
    assert abs(data.X[:, :2]).max() <= 10 and data.X[:, :2].min() < -9
    assert data.truth["relevant"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"N": 3}, "a setting of 'sinc' must be one of 'n', 'n_test', 'noise', 'seed', got 'N'"),
        ({"n": 0}, "n must be an integer >= 1, got 0"),
        ({"n_test": -1}, "n_test must be an integer >= 0, got -1"),
        ({"noise": -0.1}, "noise must be a finite number >= 0, got -0.1"),
        ({"seed": "a"}, "seed must be None, an integer"),
        ({"task": "classes"}, "task must be one of 'binary', 'multiclass', 'regression'"),
        ({"target": "y"}, "target is for a CSV file or a DataFrame"),
    ],
)
def test_bad_settings_of_a_simulator(settings, message):
    with pytest.raises(InputError, match=message):
        load("sinc", **settings)


def test_more_useful_inputs_than_inputs():
    with pytest.raises(InputError, match="useful must not exceed d = 5, got 6"):
        load("qi_synthetic", d=5, useful=6)


# --- files -----------------------------------------------------------------------------------


def write(folder, name, **arrays):
    folder.mkdir(exist_ok=True)
    plain = {"X": RNG.normal(size=(30, 2)), "t": np.arange(30) % 2}
    np.savez(folder / f"{name}.npz", **(plain | arrays))
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ARDVARK_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_file_keeps_its_names_and_splits(folder):
    X = RNG.normal(size=(30, 2)).astype("float32")
    train = np.array([[0, 1, 2], [3, 4, 5]], dtype=np.int32)
    names = np.array(["width", "height"])
    write(folder, "mine", X=X, feature_names=names, train_index=train, test_index=train + 10)
    data = load("mine")
    assert data.feature_names == ("width", "height") and np.array_equal(data.X, X)
    assert [split.train.tolist() for split in data.splits] == train.tolist()
    assert [split.test.tolist() for split in data.splits] == (train + 10).tolist()
    assert load(folder / "mine.npz").name == "mine"


def test_the_first_folder_wins_and_an_embedded_name_wins_over_files(tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, "mine", X=np.ones((30, 1)))
    write(two, "mine", X=np.ones((30, 2)))
    write(two, "wine", X=np.ones((30, 2)))
    write(two, "sinc", X=np.ones((30, 2)))
    monkeypatch.setenv(
        "ARDVARK_DATA", os.pathsep.join([str(tmp_path / "none"), str(one), str(two)])
    )
    assert load("mine").X.shape == (30, 1)
    assert load("wine").X.shape == (178, 13)
    assert load("sinc").X.shape == (1100, 1)
    assert (datasets()["name"].value_counts() == 1).all()


BAD_FILES = {
    "no target": ({"t": None}, "has no array 't'"),
    "nan": ({"X": np.full((30, 2), np.nan)}, "Data set 'bad': X has NaN in every row"),
    "length": ({"t": np.arange(29)}, "t has 29 values, X has 30 rows"),
    "names": ({"feature_names": np.array(["a"])}, r"feature_names has shape \(1,\), X has 2"),
    "same names": ({"feature_names": np.array(["a", "a"])}, "two columns named 'a'"),
    "row": ({"train_index": np.array([[30]]), "test_index": np.array([[1]])}, "has row 30"),
    "float rows": (
        {"train_index": np.array([[0.5]]), "test_index": np.array([[1]])},
        "train_index must hold row numbers",
    ),
    "leak": (
        {"train_index": np.array([[0, 7]]), "test_index": np.array([[7]])},
        "split 0 has row 7 both in train and test",
    ),
    "no rows": (
        {"train_index": np.empty((1, 0), int), "test_index": np.array([[1]])},
        "split 0 has no training rows",
    ),
    "twice": (
        {"train_index": np.array([[0, 1], [2, 2]]), "test_index": np.array([[7], [8]])},
        "split 1 has row 2 twice in train_index",
    ),
    "twice in test": (
        {"train_index": np.array([[0, 1]]), "test_index": np.array([[9, 9]])},
        "split 0 has row 9 twice in test_index",
    ),
    "control": ({"feature_names": np.array(["a", "b\x1b[31m"])}, r"control .*'b\\x1b\[31m'"),
    "splits": (
        {"train_index": np.array([[0], [1]]), "test_index": np.array([[7]])},
        "train_index has 2 splits, test_index has 1",
    ),
}
SEEN_BY_LOAD_ALONE = ("nan", "same names", "row", "leak", "no rows", "twice", "twice in test")
SEEN_BY_LOAD_ALONE += ("control",)  # the list reads headers and the target


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files(folder, kind):
    arrays, message = BAD_FILES[kind]
    write(folder, "bad", **{key: value for key, value in arrays.items() if value is not None})
    if arrays.get("t", 0) is None:
        np.savez(folder / "bad.npz", X=np.ones((3, 2)))
    with pytest.raises(InputError, match=message):
        load("bad")
    listed = datasets().set_index("name").loc["bad"]
    assert listed["origin"] == "file"
    assert bool(listed["available"]) == (kind in SEEN_BY_LOAD_ALONE)


class Hostile:
    """Leaves a mark wherever it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def test_a_hostile_file_is_refused_and_nothing_runs(folder, tmp_path):
    mark = tmp_path / "mark"
    write(folder, "evil", X=np.array([[Hostile(str(mark))]], dtype=object))
    with pytest.raises(InputError, match=r"evil.npz cannot be read .*nothing is unpickled"):
        load("evil")
    assert not mark.exists()
    with np.load(folder / "evil.npz", allow_pickle=True) as file:  # the control: it is hostile
        assert file["X"].size == 1
    assert mark.exists()


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_broken_files_are_refused_by_name(folder, content):
    folder.mkdir()
    (folder / "broken.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"broken.npz cannot be read"):
        load("broken")
    np.save(folder / "single.npy", np.ones(3))
    (folder / "single.npy").rename(folder / "single.npz")
    with pytest.raises(InputError, match=r"single.npz cannot be read"):
        load("single")


def lying(path, key, shape, size=None, compressed=False):
    """Write a data set one of whose arrays claims another shape, in an archive that may lie too."""
    plain = {"X": np.zeros((30, 2)), "t": np.arange(30) % 2}
    path.parent.mkdir(exist_ok=True)
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, array in plain.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, version=(1, 0))
            data = content.getvalue()
            if name == key:
                old = str(array.shape).encode()
                data = data.replace(b"'shape': " + old, b"'shape': " + str(shape).encode())
            archive.writestr(f"{name}.npy", data)
    if size is not None:  # the archive's own word on the size of its first member
        data = bytearray(path.read_bytes())
        place = data.index(b"PK\x01\x02") + 24
        data[place : place + 4] = size.to_bytes(4, "little")
        path.write_bytes(data)


@pytest.fixture
def little_memory():
    """Refuse to take more than two gigabytes beyond what is in use."""
    resource = pytest.importorskip("resource")
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory cannot be limited")
def test_a_header_that_claims_too_much_is_refused_by_name(folder, little_memory, capsys):
    """(1e11, 10) in a header broke `ardvark list`, which loaded every file."""
    from ardvark.commands.cli import main

    write(folder, "mine")
    lying(folder / "giant.npz", "X", (10**11, 10))
    lying(folder / "packed.npz", "X", (10**11, 10), compressed=True)
    lying(folder / "liar.npz", "X", (250_000_000, 2), size=250_000_000 * 16 + 128)
    lying(folder / "target.npz", "t", (10**11,))
    for name in ("giant", "packed", "liar", "target"):
        with pytest.raises(InputError, match=rf"{name}.npz .* claims"):
            load(name)
    table = datasets().set_index("name")
    assert table.loc["mine", "available"] and table.loc["mine", "rows"] == 30
    assert not table.loc[["giant", "packed", "liar", "target"], "available"].any()
    assert main(["list", "--json"]) == 0
    assert {"mine", "giant"} <= set(json.loads(capsys.readouterr().out)["datasets"])


def test_the_list_reads_no_inputs(folder, monkeypatch):
    write(folder, "mine", feature_names=np.array(["a", "b"]))
    real, asked = np.lib.format.read_array, []

    def counted(stream, *args, **settings):
        array = real(stream, *args, **settings)
        asked.append(array.shape)
        return array

    monkeypatch.setattr(np.lib.format, "read_array", counted)
    line = datasets().set_index("name").loc["mine"]
    assert (line["rows"], line["inputs"], line["classes"], line["splits"]) == (30, 2, 2, 0)
    assert line["task"] == "binary" and asked == [(30,)]  # the target alone


def test_a_typo_suggests_what_is_at_hand_first(folder):
    """A set that must be downloaded was suggested before one that is there."""
    write(folder, "bostom")
    with pytest.raises(InputError, match=r"mean 'bostom' or 'boston' \(to be downloaded\)\?"):
        load("bosto")


def test_an_unknown_name_lists_what_is_known(folder):
    with pytest.raises(InputError, match=r"'wein'. Did you mean 'wine'\? Known: wine, .*not found"):
        load("wein")
    write(folder, "mine")
    with pytest.raises(InputError, match=r"Known: .*mine.*put other.npz into a folder"):
        load("other")
    with pytest.raises(InputError, match=r"other.npz does not exist"):
        load(folder / "other.npz")


@pytest.mark.parametrize("name", FILES)
def test_the_collection(collection, name):
    data = load_file(name)
    rows, inputs, splits, task = FILES[name]
    assert data.X.shape == (rows, inputs) and data.t.shape == (rows,)
    assert len(data.splits) == splits and data.task == task
    assert data.source and data.licence and data.description
    assert all(len(split.train) + len(split.test) <= rows for split in data.splits)


def test_the_collection_is_listed_and_equals_the_embedded_sets(collection):
    table = datasets().set_index("name")
    files = table[table["origin"] == "file"]
    assert set(files.index) == {name for name, _ in named_files()} - set(door.KNOWN_OFFLINE)
    assert files["available"].all()
    for name in files.index.intersection(FILES):
        assert tuple(files.loc[name, ["rows", "inputs", "splits", "task"]]) == FILES[name]
    for path in (path for name, path in named_files() if name in door.EMBEDDED):
        twin, data = load(path), load(path.stem)
        assert np.array_equal(twin.X, data.X) and np.array_equal(twin.t, data.t)
        assert twin.feature_names == data.feature_names


# --- user data -------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {"width": [1.0, 2.0, 3.0, 4.0], "kind": list("abab"), "height": [1, 0, 2, 5]},
    index=[9, 8, 7, 6],
)


def test_a_frame_with_text_labels():
    data = load(FRAME, target="kind")
    assert data.task == "binary" and data.t.tolist() == list("abab")
    assert data.feature_names == ("width", "height") and data.target_name == "kind"
    assert data.classes.tolist() == ["a", "b"]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_csv_file(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    FRAME[["kind", "width", "height"]].assign(kind=[0, 1, 0, 1]).to_csv(path, index=False)
    data = load(str(path))
    assert data.name == "table" and data.task == "regression"
    assert data.target_name == "height" and data.t.tolist() == [1, 0, 2, 5]
    assert load(path, target="kind").task == "binary"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b,y\n1,2,0\n3,,1\n", {}, "X has NaN at row 1, column 'b'"),
        ("a,b,y\n1,x,0\n3,4,1\n", {}, "not numeric: 'b' .* with 'x' at row 0"),
        ("a,y\n1,0\n2,\n3,1\n", {}, "y has a missing label at row 1"),
        ("a,y\n1,0.5\n2,\n3,1.5\n", {}, "y has NaN at row 1"),
        ("a,y\n1,0\n2,1\n", {"target": "z"}, "target is 'z', table has no column of that name"),
        ("a,y\n1,0\n2,0\n", {}, "y has one class only"),
        ("a,a,y\n1,2,0\n3,4,1\n", {}, r"several columns named 'a' \(\[0, 1\]\): rename"),
        ("a,y,y\n1,2,0\n3,4,1\n", {}, "several columns named 'y'"),
        (",a,y\n5,1,0\n7,3,1\n", {}, "no name for column 0: name it"),
        ("a,,y\n1,0,0\n3,1,1\n", {}, "no name for column 1: name it"),
        ('a,"b\x07",y\n1,2,0\n3,4,1\n', {}, r"control character .* column 1, 'b\\x07'"),
        ('a,"b\u202e",y\n1,2,0\n3,4,1\n', {}, r"control character .* column 1, 'b\\u202e'"),
        ("a;y\n1;0\n", {}, "one column only .* Is the separator a comma"),
        ("1,2\n3,4\n", {}, "has numbers in its first line"),
        ("", {}, "cannot be read as CSV"),
        ("a,y\n", {}, "X has 0 rows"),
        ("a,y\n1,0\n2,1\n", {"seed": 1}, "seed: only a simulator"),
        ("a,y\n1,u\n2,v\n", {"task": "regression"}, "y has 'u' .* at row 0"),
        ("a,y\n1,0\n2,1\n3,2\n", {"task": "binary"}, "y has 3 classes"),
    ],
)
def test_bad_csv_files(tmp_path, text, options, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load(path, **options)


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
@pytest.mark.parametrize("first", [0, 1])
def test_an_index_in_a_csv_file_is_left_out_and_told(tmp_path, name, first):
    """The index that pandas (from 0) or R (from 1) writes became the input "Unnamed: 0"."""
    rows = [f"{i + first},{x},{x + 1},{i % 2}" for i, x in enumerate([3.0, 1.0, 2.0, 5.0])]
    (tmp_path / "table.csv").write_text("\n".join([f"{name},a,b,y", *rows]) + "\n")
    with pytest.warns(InputWarning, match=r"first column has no name and counts the rows"):
        data = load(tmp_path / "table.csv")
    assert data.feature_names == ("a", "b") and data.X[0].tolist() == [3.0, 4.0]


def test_a_missing_csv_file_and_a_wrong_type():
    with pytest.raises(InputError, match=r"nowhere.csv does not exist"):
        load("nowhere.csv")
    with pytest.raises(InputError, match=r"data must be a name, .* got ndarray"):
        load(np.ones((3, 2)))
    with pytest.raises(InputError, match="has no columns"):
        load(pd.DataFrame())


@pytest.mark.parametrize(
    ("target", "task"),
    [
        ([0, 1] * 20, "binary"),
        ([-1.0, 1.0] * 20, "binary"),
        ([True, False] * 20, "binary"),
        (["u", "v"] * 20, "binary"),
        (["u", "v", "w", "x"] * 10, "multiclass"),
        ([0, 1, 2, 1] * 10, "multiclass"),
        ([0, 1, 2, 3, 4] * 8, "regression"),
        ([0.5, 1.5] * 20, "regression"),
        (list(range(40)), "regression"),
        (pd.array([0, 1, None, 1] * 10, dtype="Int64"), "binary"),
        (pd.Categorical(["u", "v"] * 20), "binary"),
    ],
)
def test_the_task_is_inferred(target, task):
    assert infer_task(target) == task


def test_the_task_can_be_given():
    frame = pd.DataFrame({"a": np.arange(6.0), "y": [0, 1, 2, 0, 1, 2]})
    assert load(frame).task == "regression"
    assert load(frame, task="multiclass").classes.tolist() == [0, 1, 2]


# --- downloads -------------------------------------------------------------------------------

ABALONE = (
    "M,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,15\nI,0.33,0.255,0.08,0.205,0.09,0.04,0.05,7\n"
)
MPG = (
    '18.0   8   307.0      130.0      3504.      12.0   70  1\t"chevrolet chevelle malibu"\n'
    '25.0   4   98.00      ?          2046.      19.0   71  1\t"ford pinto"\n'
)
BOSTON = (
    "text\n" * 22
    + " 0.00632  18.00   2.310  0  0.5380  6.5750  65.20  4.0900   1  296.0  15.30\n"
    + "  396.90   4.98  24.00\n"
)
IONOSPHERE = ",".join(["1", "0", *["0.5"] * 32]) + ",g\n" + ",".join(["0"] * 34) + ",b\n"


@pytest.mark.parametrize(
    ("name", "text", "first", "target"),
    [
        ("abalone", ABALONE, [1, 0.455, 0.365, 0.095, 0.514, 0.2245, 0.101, 0.15], [15, 7]),
        ("auto_mpg", MPG, [8, 307, 130, 3504, 12, 70, 1], [18]),
        (
            "boston",
            BOSTON,
            [0.00632, 18, 2.31, 0, 0.538, 6.575, 65.2, 4.09, 1, 296, 15.3, 396.9, 4.98],
            [24],
        ),
        ("ionosphere", IONOSPHERE, [1, 0, *[0.5] * 32], [1, 0]),
    ],
)
def test_parsers_of_text(tmp_path, name, text, first, target):
    path = tmp_path / "raw"
    path.write_text(text)
    arrays = download.REMOTE[name].parse(path)
    assert arrays["X"][0].tolist() == first and arrays["t"].tolist() == target
    assert arrays["feature_names"].shape == (download.REMOTE[name].inputs,)


def test_parser_of_the_raetsch_archive(tmp_path):
    X = RNG.normal(size=(6, 2))
    labels = np.array([[1.0], [-1], [1], [-1], [1], [-1]])
    train, test = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[4, 5], [1, 2]])
    content = {"x": X, "t": labels, "train": train, "test": test}
    scipy.io.savemat(tmp_path / "raw.mat", {"heart": content})
    arrays = download.REMOTE["raetsch_heart"].parse(tmp_path / "raw.mat")
    assert np.array_equal(arrays["X"], X) and arrays["t"].tolist() == [1, -1, 1, -1, 1, -1]
    assert arrays["train_index"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["test_index"].tolist() == [[3, 4], [0, 1]]


def test_every_download_is_checked_by_some_sum():
    for remote in download.REMOTE.values():
        sums = [remote.file_sha256, remote.array_sha256]
        assert any(sums) and all(value is None or len(value) == 64 for value in sums)
        assert remote.url.startswith("http")


def test_the_digest_sees_every_number_but_not_the_layout():
    X, t = RNG.normal(size=(4, 3)), np.array([0, 1, 1, 0])
    sum_of = download.digest(X, t)
    assert download.digest(np.asfortranarray(X), t.astype(float)) == sum_of
    assert download.digest(np.where(X, X, -0.0), t) == sum_of
    assert download.digest(X, t[::-1].copy() + 1) != sum_of
    assert download.digest(X.reshape(3, 4), t) != sum_of
    X[2, 1] = np.nextafter(X[2, 1], 9)
    assert download.digest(X, t) != sum_of


def as_published(name, X, t):
    """Write numbers the way the source does."""
    if name == "abalone":
        sizes = (",".join(repr(float(x)).removesuffix(".0") for x in row[1:]) for row in X)
        pairs = zip(X[:, 0], sizes, t, strict=True)
        return "".join(f"{'MFI'[int(s) - 1]},{row},{rings:.0f}\n" for s, row, rings in pairs)
    if name == "ionosphere":
        return "".join(f"{','.join(map(str, x))},{'bg'[y]}\n" for x, y in zip(X, t, strict=True))
    if name == "auto_mpg":
        rows = zip(t, X, strict=True)
        return "".join(f'{y}  {" ".join(map(str, x))}\t"name ? of a car"\n' for y, x in rows)
    rows = (
        f" {' '.join(map(str, x[:11]))}\n {x[11]} {x[12]} {y}\n" for x, y in zip(X, t, strict=True)
    )
    return "text\n" * 22 + "".join(rows)


@pytest.mark.parametrize("name", ["abalone", "auto_mpg", "boston", "ionosphere"])
def test_the_sums_are_those_of_the_collection(collection, tmp_path, name):
    data, remote = load_file(name), download.REMOTE[name]
    assert download.digest(data.X, data.t) == remote.array_sha256
    assert (*data.X.shape, len(data.classes) if data.task == "binary" else 0) == (
        remote.rows,
        remote.inputs,
        remote.classes,
    )
    path = tmp_path / "raw"
    path.write_bytes(as_published(name, data.X, data.t).encode())
    arrays = remote.parse(path)
    assert download.digest(arrays["X"], arrays["t"]) == remote.array_sha256
    assert tuple(arrays["feature_names"]) == data.feature_names
    if name == "abalone":  # its text can be written back to the last byte
        assert hashlib.sha256(path.read_bytes()).hexdigest() == remote.file_sha256


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.02,))
        thread.start()
        yield site, f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def offer(monkeypatch, server, text, **sums):
    """Let `abalone` come from the local server."""
    site, address = server
    (site / "abalone.data").write_text(text)
    remote = download.REMOTE["abalone"]
    none = {"file_sha256": None, "array_sha256": None}
    local = dataclasses.replace(remote, url=f"{address}/abalone.data", **(none | sums))
    monkeypatch.setitem(download.REMOTE, "abalone", local)
    return download.cache_folder() / "abalone.data"


def test_a_download_is_checked_cached_and_loaded(monkeypatch, server):
    X = [[1, 0.455, 0.365, 0.095, 0.514, 0.2245, 0.101, 0.15]]
    X += [[3, 0.33, 0.255, 0.08, 0.205, 0.09, 0.04, 0.05]]
    right = {
        "file_sha256": hashlib.sha256(ABALONE.encode()).hexdigest(),
        "array_sha256": download.digest(X, [15, 7]),
    }
    cached = offer(monkeypatch, server, ABALONE, **right)
    assert not datasets().set_index("name").loc["abalone", "available"]
    data = load("abalone", task="regression")
    assert data.t.tolist() == [15, 7] and data.source == "UCI"
    assert cached.is_file()
    (server[0] / "abalone.data").unlink()
    assert load("abalone", task="regression").X.tolist() == X
    assert datasets().set_index("name").loc["abalone", "available"]


@pytest.mark.parametrize(
    ("text", "sums", "what"),
    [
        (ABALONE, {"file_sha256": "0" * 64}, "file"),
        (ABALONE, {"array_sha256": "0" * 64}, "numbers"),
        ("<html>moved</html>", {"array_sha256": "0" * 64}, "layout"),
    ],
)
def test_a_wrong_download_is_refused_and_deleted(monkeypatch, server, text, sums, what):
    cached = offer(monkeypatch, server, text, **sums)
    with pytest.raises(OSError, match=f"'abalone'.*not the reference data .its {what} differs"):
        load("abalone")
    assert not cached.exists() and not any(cached.parent.iterdir())


@pytest.mark.parametrize("path", ["/nothing.data", None])
def test_without_a_network_the_message_says_what_to_do(monkeypatch, server, path):
    offer(monkeypatch, server, ABALONE)
    url = "http://127.0.0.1:9/abalone.data" if path is None else server[1] + path
    local = dataclasses.replace(download.REMOTE["abalone"], url=url)
    monkeypatch.setitem(download.REMOTE, "abalone", local)
    with pytest.raises(OSError, match=r"'abalone' has to be downloaded.*no network.*ARDVARK_DATA"):
        load("abalone")


def test_what_is_at_hand_never_asks_the_network(monkeypatch, folder):
    def refuse(name):
        raise AssertionError(f"{name} went to the network")

    monkeypatch.setattr(door, "fetch", refuse)
    write(folder, "abalone")
    assert load("abalone").X.shape == (30, 2)
    assert load("wdbc").X.shape == (569, 30)
    assert len(datasets()) > len(SIMULATORS)
