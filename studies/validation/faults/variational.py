"""Faults of variational Bayes: linear models and the sample-feature machine."""

from ardvark.studies.validation.faults.fault import Fault

__all__ = ["FAULTS"]

ROWS, BLOCKS = "inference/vb/rows.py", "inference/vb/blocks.py"
MACHINE = "inference/sample_feature/vb.py"
OF_BLOCKS = "tests/inference/vb/test_blocks.py::"
OF_LINEAR = "tests/inference/vb/test_linear.py::"
OF_MACHINE = "tests/inference/sample_feature/test_sample_feature_vb.py::"

FAULTS = (
    Fault(
        "one row too many in the shape of the noise",
        "VB",
        ROWS,
        "self.prior, conjugate(self.prior, np.asarray(squares), rows)",
        "self.prior, conjugate(self.prior, np.asarray(squares), rows + 1)",
        (
            OF_BLOCKS + "test_gamma_noise_is_conjugate",
            OF_MACHINE + "test_bound_never_falls_at_any_block",
        ),
        "Mir17 (18) as printed: a + (N + 1)/2",
    ),
    Fault(
        "one zeta for all samples",
        "VB",
        ROWS,
        "return LogisticRows(self.sign, np.sqrt(second))  # Mir17 (30), of one sample",
        "return LogisticRows(self.sign, np.sqrt(np.full_like(second, second.sum())))",
        (OF_MACHINE + "test_bound_never_falls_at_any_block",),
        "Mir17 (30) as printed: a sum over samples",
    ),
    Fault(
        "the curvature of the logistic bound at zero",
        "VB",
        ROWS,
        "away = np.maximum(np.abs(zeta), _FLAT)",
        "away = np.abs(zeta)",
        (OF_BLOCKS + "test_logistic_parabola_is_below_and_touches",),
        "Mir17 (30): f(0) is 0/0",
    ),
    Fault(
        "a pair of weights keeps its constant out of the precisions",
        "VB",
        BLOCKS,
        "return Gamma(prior.shape + 0.5 * count + np.zeros_like(rate), rate)",
        "return Gamma(prior.shape + count + np.zeros_like(rate), rate)",
        (OF_BLOCKS + "test_conjugate_update_is_bayes_rule",),
    ),
    Fault(
        "the bound without the entropy of the weights",
        "VB",
        BLOCKS,
        "return 0.5 * float(quadratic) + half_log_det",
        "return 0.5 * float(quadratic)",
        (
            OF_LINEAR + "test_fixed_precisions_and_noise_are_the_exact_posterior",
            OF_LINEAR + "test_bound_is_below_the_evidence_and_near_it",
        ),
    ),
    Fault(
        "utilities of a probit are not cut at zero",
        "VB",
        ROWS,
        "latent = self.centre + score\n",
        "latent = self.centre\n",
        (OF_BLOCKS + "test_probit_bound_is_albert_and_chibs",),
    ),
    Fault(
        "the ridge is climbed to another top",
        "VB",
        MACHINE,
        "k = a * (len(state.samples) - len(state.features))",
        "k = a * (len(state.samples) + len(state.features))",
        (OF_MACHINE + "test_scale_step_is_at_the_top_of_the_ridge",),
        "Mir17: nothing but the flat prior fixes the scale",
    ),
    Fault(
        "pruning by the sign of the weights",
        "VB",
        MACHINE,
        'if pruning.by == "size" else np.abs(q.mean)',
        'if pruning.by == "size" else q.mean',
        (OF_MACHINE + "test_a_weight_counts_by_its_size_whatever_its_sign",),
        "Mir17, algorithm 1 as printed: max(mu)",
    ),
    Fault(
        "lambda starts at zero",
        "VB",
        "inference/sample_feature/search.py",
        'yield "ones", np.ones(size)',
        'yield "ones", np.zeros(size)',
        (OF_MACHINE + "test_zero_is_a_fixed_point_and_no_start",),
        "Mir17: no start is printed, and zero is a fixed point",
    ),
    Fault(
        "the constants have no precision of their own",
        "VB",
        MACHINE,
        "conjugate(self.prior, q.second)",
        "conjugate(self.prior, q.second * (np.arange(q.second.size) > 0))",
        (OF_MACHINE + "test_invariants_equal_a_naive_implementation",),
        "Mir17 (28), (29) as printed: they begin at index 1",
    ),
    Fault(
        "pruning from the first sweep on",
        "VB",
        "inference/vb/climb.py",
        "(len(path) + 1 >= pruning.warm_up or calm >= _CALM)",
        "True",
        (OF_MACHINE + "test_nothing_is_pruned_before_the_warm_up",),
        "Mir17, algorithm 1: it can kill the model",
    ),
    Fault(
        "ends are compared by the bound of what is left",
        "VB",
        MACHINE,
        "        if not pruned or isinstance(state.alpha_w, Known) or",
        "        if pruned or isinstance(state.alpha_w, Known) or",
        (OF_MACHINE + "test_ends_are_compared_by_the_bound_of_the_whole_model",),
        "Mir17: each weight less is worth 14 nats",
    ),
    Fault(
        "a collapsed scale is an answer",
        "VB",
        "inference/vb/run.py",
        "    if low + 2 * _FINE < u < high - 2 * _FINE:",
        "    if low <= u <= high:",
        ("tests/inference/vb/test_vb_scale.py::test_a_collapsed_scale_is_named",),
        "a defect of 0.1.0: a group scale of 0.03 with sd 0",
    ),
    Fault(
        "a point is called a posterior",
        "VB",
        "inference/vb/run.py",
        'return "posterior" if roles.groups or roles.noise else "mode"',
        'return "posterior"',
        ("tests/inference/vb/test_vb_scale.py::test_a_point_is_called_one",),
        "a defect of 0.1.0: a group scale of 0.03 with sd 0",
    ),
    Fault(
        "an optimum that one start alone has found is not told",
        "VB",
        "inference/vb/run.py",
        "if not others or best - others[0] <= _NEAR:",
        "if not others or best - others[-1] <= _NEAR:",
        (OF_MACHINE + "test_an_optimum_that_one_start_alone_has_found_is_told",),
    ),
)
