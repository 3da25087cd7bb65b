# mypy: ignore-errors
"""One logit GLMM by statsmodels: python3 run_statsmodels.py data.csv crossed|one_way.

BinomialBayesMixedGLM, variational Bayes: its own Gaussian approximation with independent effects.
Prints CPU seconds of the fit, fixed effects and sds of the random ones. Any Python that has
statsmodels will do.
"""

import json
import sys
import time
import warnings

import numpy as np
import pandas as pd
import scipy.sparse
import statsmodels
from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

data = pd.read_csv(sys.argv[1])
factors = ["g", "h"] if sys.argv[2] == "crossed" else ["g"]
fixed = np.column_stack([np.ones(len(data)), data["x0"], data["x1"]])
parts = [
    scipy.sparse.csr_matrix((np.ones(len(data)), (np.arange(len(data)), data[factor])))
    for factor in factors
]
which = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
before = time.process_time()
model = BinomialBayesMixedGLM(
    data["t"].to_numpy(float), fixed, scipy.sparse.hstack(parts).tocsr(), which, vcp_p=1, fe_p=5
)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    fit = model.fit_vb()
print(  # noqa: T201
    json.dumps(
        {
            "cpu_seconds": time.process_time() - before,
            "fixed": fit.fe_mean.tolist(),
            "sds": np.exp(fit.vcp_mean).tolist(),
            "version": f"statsmodels {statsmodels.__version__}",
            "converged": not any("converge" in str(w.message) for w in said),
        }
    )
)
