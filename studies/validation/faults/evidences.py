"""Faults of sequential ARD, of the searches over hyperparameters, of Integrated and the bridge."""

from ardvark.studies.validation.faults.fault import Fault

__all__ = ["FAULTS"]

OF_SEQUENTIAL = "tests/inference/ard/test_sequential_ard.py::"
OF_GAUSSIAN = "tests/inference/ard/test_gaussian_ard.py::"
OF_SUPPORT = "tests/inference/process/test_support.py::"
OF_DUAL = "tests/inference/process/test_dual.py::"
SUPPORT, DUAL = "inference/process/support.py", "inference/process/dual.py"
ARD, KERNELS = "inference/ard/kernels.py", "inference/ard/gaussian_ard_kernels.py"
INTEGRATE = "inference/hyper/integrate.py"
OF_INTEGRATE = "tests/inference/hyper/test_integrate.py::"
BRIDGE, OF_BRIDGE = "inference/bridge/bridge.py", "tests/inference/bridge/test_bridge.py::"

FAULTS = (
    Fault(
        "the gain of a weight without its logarithm",
        "sequential ARD",
        ARD,
        "gain = 0.5 * (u[j] * u[j] / (alpha + r[j]) - math.log1p(r[j] / alpha))",
        "gain = 0.5 * (u[j] * u[j] / (alpha + r[j]) - r[j] / alpha)",
        (OF_SEQUENTIAL + "test_each_step_gains_exactly_what_it_promises",),
        "Qi04, the decomposition before (15) as printed: no logarithms",
    ),
    Fault(
        "what is known already is subtracted from the pull, not the information",
        "sequential ARD",
        "inference/sites/posterior.py",
        "return self.site_precision @ squares - taken, ",
        "return self.site_precision @ squares, -taken + ",
        (OF_SEQUENTIAL + "test_statistics_are_those_of_the_definition",),
        "Qi04 (17) as printed: its second terms are exchanged",
    ),
    Fault(
        "information with variances for precisions",
        "sequential ARD",
        "inference/sites/posterior.py",
        "known = self._root.T @ (self.prior.projection.T * self.site_precision)",
        "known = self._root.T @ (self.prior.projection.T / self.site_precision)",
        (OF_SEQUENTIAL + "test_statistics_are_those_of_the_definition",),
        "Qi04, C before (15) as printed",
    ),
    Fault(
        "a precision is inverted",
        "sequential ARD",
        ARD,
        "alpha = max(r[j] * (r[j] / relevance), least[j])",
        "alpha = max(relevance / (r[j] * r[j]), least[j])",
        (OF_SEQUENTIAL + "test_precision_of_a_lone_weight_is_the_closed_form",),
    ),
    Fault(
        "no lower bound of the precisions",
        "sequential ARD",
        ARD,
        "alpha = max(r[j] * (r[j] / relevance), least[j])",
        "alpha = r[j] * (r[j] / relevance)",
        (OF_SEQUENTIAL + "test_lower_bound_holds_on_separable_data",),
        "Qi04: on separable data the precisions drift down without end",
    ),
    Fault(
        "a path may run in a circle",
        "sequential ARD",
        "inference/ard/sequential_ard.py",
        "        careful = careful or state in seen\n",
        "",
        (OF_SEQUENTIAL + "test_a_path_that_runs_in_a_circle_is_led_out_of_it",),
        "Qi04: full steps can add and delete one weight for ever",
    ),
    Fault(
        "steps of fixed sites are the end of Laplace's search",
        "evidence",
        "inference/hyper/ascent.py",
        "self.sites_move = bool(np.abs(slopes).max(initial=0.0) > _FLAT)",
        "self.sites_move = False",
        (
            "tests/inference/hyper/test_hyper.py::test_a_precision_and_a_scale_end_at_the_same_evidence",
        ),
        "a defect of 0.1.0: not at a maximum, and called converged",
    ),
    Fault(
        "a weight that is out is judged by fixed sites alone",
        "evidence",
        "inference/ard/gradient.py",
        "true = np.sqrt(np.maximum(pull**2 + 2.0 * pull * moved, 0.0))",
        "true = np.abs(pull)",
        (OF_SEQUENTIAL + "test_true_slopes_of_weights_in_and_out",),
        "a defect of 0.1.0: not at a maximum, and called converged",
    ),
    Fault(
        "EM for MacKay's update",
        "evidence",
        "inference/ard/fixed_point.py",
        "np.maximum(1.0 - alpha * variance, 0.0) / mean**2",
        "1.0 / (mean**2 + variance)",
        ("tests/inference/ard/test_fixed_point.py::test_em_never_falls_and_mackay_is_quicker",),
    ),
    Fault(
        "the noise's gradient forgets what the weights take",
        "gradients",
        KERNELS,
        "gradient[k] = 0.5 * (beta * misfit - rows + k - tight)",
        "gradient[k] = 0.5 * (beta * misfit - rows)",
        (OF_GAUSSIAN + "test_gradient_and_hessian_are_those_of_finite_differences",),
    ),
    Fault(
        "one 2 pi for each row and for the bias",
        "evidence",
        "inference/ard/gaussian_ard.py",
        "rows * math.log(2 * math.pi / beta)",
        "(rows + 1) * math.log(2 * math.pi / beta)",
        (OF_GAUSSIAN + "test_path_tells_the_evidence_of_the_definition",),
        "Tip04, the exponent of 2 pi as printed: (N + 1)/2",
    ),
    Fault(
        "a noise without its least value",
        "evidence",
        "inference/hyper/ascent.py",
        "            side[place] = least[place]\n",
        "",
        (
            "tests/contracts/test_degenerate.py::"
            "test_a_constant_target_ends_at_the_bound_of_its_noise[rvm_regression-3.0]",
        ),
        "a defect of 0.1.0: a constant target drove the noise to 1e-15",
    ),
    Fault(
        "the gradient in the scales of the inputs without the covariance of the weights",
        "gradients",
        "inference/laplace.py",
        "        projection += second_times(cross)\n",
        "",
        ("tests/models/test_rvm.py::test_gradient_in_the_input_scales_is_the_closed_form",),
        "Tip04: the gradient in the scales of the inputs is not printed",
    ),
    Fault(
        "a scale that collapses is no news",
        "evidence",
        "inference/hyper/descend.py",
        "            if abs(change) < _LEVEL:",
        "            if abs(change) < 0.0:",
        (
            "tests/inference/hyper/test_descend.py::test_a_scale_that_collapses_is_named",
            "tests/inference/hyper/test_integrated.py::"
            "test_a_collapsed_scale_is_named_and_integration_does_not_collapse",
        ),
        "a defect of 0.1.0: centred hierarchies, silently wrong",
    ),
    Fault(
        "hyperparameters on the line without the Jacobian",
        "Integrated",
        "inference/hyper/integrated.py",
        "return self.log_evidence + self.correction + self.log_prior + self.log_jacobian",
        "return self.log_evidence + self.correction + self.log_prior",
        ("tests/inference/hyper/test_integrated.py::test_eight_schools_are_those_of_quadrature",),
        "a defect of 0.1.0: centred hierarchies, silently wrong",
    ),
    Fault(
        "points weighed by the density of z, not of φ",
        "Integrated",
        INTEGRATE,
        "return _weighted(phi, log_f, log_q - axes.log_volume(z), edge, other)",
        "return _weighted(phi, log_f, log_q, edge, other)",
        (OF_INTEGRATE + "test_a_grid_follows_a_skewed_density",),
    ),
    Fault(
        "a mixture of proposals with the density of its wide part",
        "Integrated",
        INTEGRATE,
        "return np.asarray(np.logaddexp(wide, kernels) - math.log(2.0))",
        "return np.asarray(wide)",
        (OF_INTEGRATE + "test_rounds_follow_it_in_more_dimensions",),
    ),
    Fault(
        "an ordered hyperparameter keeps its start",
        "Integrated",
        "inference/graph/chart.py",
        "            jacobians.append(transform.log_jac_det(u, *bounds).sum())\n",
        "",
        ("tests/inference/graph/test_chart.py::test_prior_and_jacobian_are_pymcs_own",),
        "a defect of 0.1.0: ordered values and simplexes",
    ),
    Fault(
        "tail quantiles are left out of the smoothing",
        "PSIS",
        "inference/hyper/pareto.py",
        "values[largest] = np.minimum(np.log(scale * quantile + math.exp(cut)), 0.0)",
        "values[largest] = 0.0",
        ("tests/inference/hyper/test_pareto.py::test_the_tail_is_that_of_arviz",),
    ),
    Fault(
        "the two banks of the bridge are exchanged",
        "bridge",
        BRIDGE,
        "        below = -np.logaddexp(log_s1 + ours, log_s2 + log_z)",
        "        below = -np.logaddexp(log_s2 + ours, log_s1 + log_z)",
        (OF_BRIDGE + "test_banks_of_other_sizes_meet_at_the_same_evidence",),
    ),
    Fault(
        "the error of a bridge without that of its proposals",
        "bridge",
        BRIDGE,
        "    variance = one.var() / one.mean() ** 2 / one.size\n",
        "    variance = 0.0\n",
        (OF_BRIDGE + "test_the_error_is_calibrated",),
    ),
    Fault(
        "warping counts the density twice",
        "bridge",
        BRIDGE,
        "np.logaddexp(both[: len(x)], both[len(x) :]) - math.log(2.0)",
        "np.logaddexp(both[: len(x)], both[len(x) :])",
        (OF_BRIDGE + "test_warping_takes_the_skewness_out",),
    ),
    Fault(
        "a factor n in the dual of the SVM",
        "trigonometric SVM",
        DUAL,
        "conjugate = alpha * excess - np.log1p(np.square(alpha / HALF_PI))  # g(α), Chu06 (11)",
        "conjugate = alpha * excess - len(alpha) * np.log1p(np.square(alpha / HALF_PI))",
        (OF_DUAL + "test_dual_and_primal_agree",),
        "Chu06 (11) as printed",
    ),
    Fault(
        "Λ does not move with the mode",
        "trigonometric SVM",
        SUPPORT,
        "pull = -0.5 * q * turn * sign[rows]",
        "pull = -0.0 * q * turn * sign[rows]",
        (OF_SUPPORT + "test_gradient_against_central_differences",),
        "Chu06, the gradient of (15) without its implicit part",
    ),
    Fault(
        "Λ of all rows, not of the support vectors",
        "trigonometric SVM",
        DUAL,
        "return np.pi**2 / 8.0 + 0.5 * np.square(alpha)",
        "return np.pi**2 / 8.0 * np.ones_like(alpha)",
        (OF_SUPPORT + "test_value_is_the_general_laplace_evidence",),
        "Chu06: Λ after (14) is not printed",
    ),
    Fault(
        "equal optima count as often as they are found",
        "trigonometric SVM",
        "inference/process/search.py",
        "weight = np.exp(values - logsumexp(values))  # Chu06 (18)",
        "weight = np.exp(values - logsumexp(values)) * np.array(found)",
        (
            "tests/inference/process/test_process_search.py::"
            "test_equal_optima_count_once_and_weights_are_a_softmax",
        ),
        "Chu06 (18): multiplicity acts as weight",
    ),
    Fault(
        "new rows predicted with the prior's variance",
        "trigonometric SVM",
        "inference/process/run.py",
        "return _mass(cross @ pull, variance)",
        "return _mass(cross @ pull, covariance.variance(X_new, kappa))",
        (
            "tests/inference/process/test_process_run.py::test_predictions_agree_by_formula_and_by_draws",
        ),
        "Chu06: the predictive distribution is not printed",
    ),
)
