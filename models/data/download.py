"""Public data sets that are not embedded: where they come from, and how to fetch some of them.

`ORIGINS` has source and licence of the sets that are usually found as files on `ARDVARK_DATA`.
`REMOTE` holds those that `fetch` can download into a cache (`ARDVARK_CACHE`, else the system's
cache folder). What arrives is checked before it is used: by the SHA-256 of the raw file where that
is known, and by the SHA-256 of the parsed numbers (`digest`) where reference numbers are at hand:
that says more, since whatever the file looks like, inputs and target then equal the reference ones
to the last bit. What fails is deleted and refused. The sum of Raetsch's archive is the one that
scikit-datasets publishes.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ORIGINS", "REMOTE", "Origin", "Remote", "cache_folder", "digest", "fetch"]

type Arrays = dict[str, npt.NDArray[Any]]

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
RAETSCH = "https://github.com/tdiethe/gunnar_raetsch_benchmark_datasets/raw/master/benchmarks.mat"
RAETSCH_SHA256 = "47c19e4bc4716edc4077cfa5ea61edf4d02af4ec51a0ecfe035626ae8b561c75"


class Origin(NamedTuple):
    """Where a set comes from, under which licence, and what its target is."""

    source: str
    licence: str
    description: str


_ASC = "fernando2393/Relevance-Vector-Machine and Devn913/AGMR_entropy_sparse (Raetsch collection)"
_MASS, _MLBENCH = "R package MASS 7.3-58.2", "R package mlbench 2.1-3"
_MICROARRAY = "ramhiser/datamicroarray"
_GPL, _NONE = "GPL-2 or GPL-3", "none stated"

ORIGINS = {
    "abalone": Origin("UCI; gbodra/pel202-pc-algorithm", "MIT-style", "rings of a shell"),
    "auto_mpg": Origin("UCI; edwibedi/Auto-MPG", _NONE, "mpg; 392 complete rows of 398"),
    "bodyfat": Origin("StatLib; jvcm/irt_project", _NONE, "density; column 0 is percent fat"),
    "boston": Origin(f"{_MASS}: Boston", _GPL, "median house value, uncorrected version"),
    "colon_alon": Origin(f"{_MICROARRAY}: alon", "MIT", "1 = tumour; raw intensities"),
    "cpusmall": Origin("JusciAvelino/imbalancedRegression", _NONE, "share of user time"),
    "crabs": Origin(f"{_MASS}: crabs", _GPL, "sex, 1 = male"),
    "ionosphere": Origin(f"UCI; {_MLBENCH}", "GPL-2", "1 = good; V2 is constant"),
    "leukaemia_golub": Origin(f"{_MICROARRAY}: golub", "MIT", "1 = AML; raw values"),
    "madelon": Origin("NIPS 2003; jundongl/scikit-feature", "GPL-2", "train and valid rows"),
    "raetsch_banana": Origin(_ASC, _NONE, "realisations 1-10"),
    "raetsch_breast_cancer": Origin(_ASC, _NONE, "realisations 1-10"),
    "raetsch_diabetes": Origin(
        f"{_MLBENCH}; manuwhs/B-ADSNs", "GPL-2", "raw values; one partition, its number unknown"
    ),
    "raetsch_flare_solar": Origin("Devn913/AGMR_entropy_sparse", _NONE, "integer codes"),
    "raetsch_german": Origin(_ASC, _NONE, "realisations 1-10"),
    "raetsch_image": Origin(_ASC, _NONE, "realisations 1-10"),
    "raetsch_splice": Origin("Devn913/AGMR_entropy_sparse", _NONE, "bases coded 1-4"),
    "raetsch_titanic": Origin(_ASC, _NONE, "realisations 1-10; 24 distinct rows"),
    "raetsch_twonorm": Origin("yzhang00/Python-ML-Project-2", _NONE, "realisation 1"),
    "raetsch_waveform": Origin(_ASC, _NONE, "realisations 1-10"),
    "ripley_pima": Origin(f"{_MASS}: Pima.tr, Pima.te", _GPL, "1 = diabetic"),
    "ripley_synth": Origin(f"{_MASS}: synth.tr, synth.te", _GPL, "four Gaussians"),
    "triazines": Origin("akmand/datasets", _NONE, "activity"),
    "usps": Origin(
        "niuers/Learning-From-Data-A-Short-Course", _NONE, "digit; grey values in [0, 1]"
    ),
}


@dataclass(frozen=True, slots=True)
class Remote:
    """One set that can be fetched: where, how to read it, and how to know that it is right."""

    url: str
    parse: Callable[[Path], Arrays]
    rows: int
    inputs: int
    classes: int  # 0: a real target
    origin: Origin
    file_sha256: str | None = None
    array_sha256: str | None = None

    @property
    def file_name(self) -> str:
        """Name of the file in the cache."""
        return self.url.rsplit("/", 1)[-1]


def digest(X: npt.ArrayLike, t: npt.ArrayLike) -> str:
    """SHA-256 of the numbers: shape, then X and t as little-endian float64 in C order."""
    inputs, target = (np.asarray(values, dtype="<f8") + 0.0 for values in (X, t))  # no -0.0
    content = repr(inputs.shape).encode() + inputs.tobytes() + target.tobytes()
    return hashlib.sha256(content).hexdigest()


def cache_folder() -> Path:
    """Return the folder that downloads are kept in."""
    import pooch

    return Path(os.environ.get("ARDVARK_CACHE") or pooch.os_cache("ardvark"))


def fetch(name: str) -> Arrays:
    """Download a set of `REMOTE` (once), check it and give its arrays.

    Raises
    ------
    OSError
        If it cannot be fetched, or its checksum is wrong.
    """
    import pooch
    from requests.exceptions import RequestException

    remote = REMOTE[name]
    try:
        path = pooch.retrieve(
            remote.url,
            known_hash=remote.file_sha256 and f"sha256:{remote.file_sha256}",
            fname=remote.file_name,
            path=cache_folder(),
            downloader=pooch.HTTPDownloader(timeout=30),
        )
    except RequestException as error:
        raise OSError(
            f"Data set {name!r} has to be downloaded from {remote.url}, and "
            f"that failed: no network? ({type(error).__name__}). Without a network put {name}.npz "
            f"(arrays X, t, feature_names) into a folder and name the folder in ARDVARK_DATA."
        ) from error
    except ValueError as error:
        raise _not_the_reference(name, remote, "file") from error
    return _checked(name, remote, Path(path))


def _checked(name: str, remote: Remote, path: Path) -> Arrays:
    try:
        arrays = remote.parse(path)
        right = remote.array_sha256 in (None, digest(arrays["X"], arrays["t"]))
    except (ValueError, IndexError, KeyError) as error:
        path.unlink()
        raise _not_the_reference(name, remote, "layout") from error
    if not right:
        path.unlink()
        raise _not_the_reference(name, remote, "numbers")
    return arrays


def _not_the_reference(name: str, remote: Remote, what: str) -> OSError:
    return OSError(
        f"Data set {name!r}: what {remote.url} gave is not the reference data (its {what} differs: "
        f"SHA-256). The download was deleted; try again, or put {name}.npz into a folder on "
        f"ARDVARK_DATA."
    )


# --- parsers: a file of the source in, arrays as in the .npz files out -------------------------


def parse_abalone(path: Path) -> Arrays:
    """Read UCI's abalone.data: sex, seven sizes and weights, rings."""
    rows = [line.split(",") for line in path.read_text().split()]
    sex = {"M": 1.0, "F": 2.0, "I": 3.0}
    table = np.array([[sex[row[0]], *map(float, row[1:])] for row in rows])
    names = (
        "sex(M=1,F=2,I=3) length diameter height whole_weight "
        "shucked_weight viscera_weight shell_weight"
    )
    return {"X": table[:, :8], "t": table[:, 8], "feature_names": np.array(names.split())}


def parse_auto_mpg(path: Path) -> Arrays:
    """Read UCI's auto-mpg.data: mpg first, the car's name last; rows without horsepower go."""
    rows = [line.split("\t")[0].split() for line in path.read_text().splitlines() if line.strip()]
    table = np.array([list(map(float, row)) for row in rows if "?" not in row])
    names = "cylinders displacement horsepower weight acceleration model_year origin"
    return {"X": table[:, 1:], "t": table[:, 0], "feature_names": np.array(names.split())}


def parse_boston(path: Path) -> Arrays:
    """Read StatLib's boston: 22 lines of text, then each record on two lines."""
    numbers = " ".join(path.read_text().splitlines()[22:]).split()
    table = np.array(numbers, dtype=float).reshape(-1, 14)
    names = "crim zn indus chas nox rm age dis rad tax ptratio black lstat"
    return {"X": table[:, :13], "t": table[:, 13], "feature_names": np.array(names.split())}


def parse_ionosphere(path: Path) -> Arrays:
    """Read UCI's ionosphere.data; the first 200 rows train, the rest test (UCI's own text)."""
    rows = [line.split(",") for line in path.read_text().split()]
    code = {"g": 1, "b": 0}
    return {
        "X": np.array([row[:-1] for row in rows], dtype=float),
        "t": np.array([code[row[-1]] for row in rows]),
        "feature_names": np.array([f"V{column}" for column in range(1, len(rows[0]))]),
        "train_index": np.arange(min(200, len(rows)))[None],
        "test_index": np.arange(200, max(200, len(rows)))[None],
    }


def parse_raetsch(path: Path, key: str) -> Arrays:
    """Read one set of benchmarks.mat: inputs, labels, and all numbered train and test rows."""
    from scipy.io import loadmat

    X, t, train, test = loadmat(path)[key][0, 0]
    return {
        "X": X,
        "t": t.ravel().astype(np.int64),
        "feature_names": np.array([f"x{column}" for column in range(1, X.shape[1] + 1)]),
        "train_index": train.astype(np.int64) - 1,
        "test_index": test.astype(np.int64) - 1,
    }


RAETSCH_SHAPES = {  # as published
    "banana": (5300, 2),
    "breast_cancer": (277, 9),
    "diabetis": (768, 8),
    "flare_solar": (1066, 9),
    "german": (1000, 20),
    "heart": (270, 13),
    "image": (2310, 18),
    "ringnorm": (7400, 20),
    "splice": (3175, 60),
    "thyroid": (215, 5),
    "titanic": (2201, 3),
    "twonorm": (7400, 20),
    "waveform": (5000, 21),
}

REMOTE = {
    "abalone": Remote(
        f"{UCI}/abalone/abalone.data",
        parse_abalone,
        *(4177, 8, 0),
        Origin("UCI", "CC BY 4.0", ORIGINS["abalone"].description),
        file_sha256="de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
        array_sha256="4e45e59bae463ed131aeace127e5699160ad771b587157395987fba79a18d0eb",
    ),
    "auto_mpg": Remote(
        f"{UCI}/auto-mpg/auto-mpg.data",
        parse_auto_mpg,
        *(392, 7, 0),
        Origin("UCI", "CC BY 4.0", ORIGINS["auto_mpg"].description),
        array_sha256="57fbd782a09079a525d1988a2295ffccbad3a4b646d676980d17ac7769a834cb",
    ),
    "boston": Remote(
        "http://lib.stat.cmu.edu/datasets/boston",
        parse_boston,
        *(506, 13, 0),
        Origin("StatLib", _NONE, ORIGINS["boston"].description),
        array_sha256="cf15269a0ec60d764547c44bf2f5de905657b76e8d3a88c0328ecba0f4f45b23",
    ),
    "ionosphere": Remote(
        f"{UCI}/ionosphere/ionosphere.data",
        parse_ionosphere,
        *(351, 34, 2),
        Origin("UCI", "CC BY 4.0", ORIGINS["ionosphere"].description),
        array_sha256="3c0a82654918f51927106137448e81c4da9692052c8b41718cfd03960fd98aef",
    ),
} | {
    f"raetsch_{key}": Remote(
        RAETSCH,
        partial(parse_raetsch, key=key),
        *(rows, inputs, 2),
        Origin("tdiethe/gunnar_raetsch_benchmark_datasets", "MIT-style", "all realisations"),
        file_sha256=RAETSCH_SHA256,
    )
    for key, (rows, inputs) in RAETSCH_SHAPES.items()
}
