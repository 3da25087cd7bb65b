"""Make the reference posteriors: `python tests/references/make.py` (a few minutes).

A reference is 4 chains of 20000 draws by NUTS with R-hat below 1.005 and no divergence.
Kept: mean and sd of each weight with their Monte Carlo errors, in the order of the reader's names.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import arviz_stats
from cases import CASES, FOLDER, FREE_CASES, SEVERAL_CLASSES

import ardvark as av


def make(name: str) -> None:
    case = (CASES | SEVERAL_CLASSES | FREE_CASES)[name]
    model = case.build()
    tree = av.fit(
        model,
        av.NUTS(predictor=case.predictor, tune=2000),
        draws=20000,
        random_seed=1,
        progressbar=False,
    )
    draws = np.concatenate(
        [tree["posterior"][w].values.reshape(4, 20000, -1) for w in case.weights], axis=2
    ).transpose(2, 0, 1)
    rhat = max(float(arviz_stats.rhat(d)) for d in draws)
    assert rhat < 1.005 and not tree["sample_stats"].diverging.values.any(), (name, rhat)
    np.savez(
        Path(FOLDER) / f"{name}.npz",
        mean=draws.mean(axis=(1, 2)),
        sd=draws.std(axis=(1, 2)),
        mean_mcse=[float(arviz_stats.mcse(d, method="mean")) for d in draws],
        sd_mcse=[float(arviz_stats.mcse(d, method="sd")) for d in draws],
        rhat=rhat,
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or (CASES | SEVERAL_CLASSES | FREE_CASES):
        make(name)
