"""Faults of EP, Laplace, their sites and gradients."""

from ardvark.studies.validation.faults.fault import Fault

__all__ = ["FAULTS"]

EP, SEQUENTIAL = "inference/ep/ep.py", "inference/ep/sequential.py"
LAPLACE, POSTERIOR = "inference/laplace.py", "inference/sites/posterior.py"
OF_EP = "tests/inference/ep/test_ep.py::"
OF_LAPLACE = "tests/inference/test_laplace.py::"
OF_RECOGNITION = "tests/inference/known_sites/test_recognition.py::"
OF_POSTERIOR = "tests/inference/sites/test_posterior.py::"

FAULTS = (
    Fault(
        "precisions divide in the evidence of EP",
        "EP",
        EP,
        "return per_row - posterior.half_log_det - 0.5 * float(shift)",
        "return per_row - posterior.half_log_det - 0.5 * float(shift) - float("
        "np.log(posterior.prior.model.precision[posterior.prior.on]).sum())",
        (OF_EP + "test_precisions_multiply_in_the_evidence",),
        "Qi04 (11) as printed",
    ),
    Fault(
        "the old mean in the update of a site",
        "EP",
        SEQUENTIAL,
        "nu = tau * centre + (1.0 + spread * tau) * h / scale",
        "nu = tau * centre + h / scale",
        (OF_EP + "test_one_row_equals_integration",),
        "Qi04 (6), its mean read as the old one",
    ),
    Fault(
        "a stale cavity: the site stays in",
        "EP",
        SEQUENTIAL,
        "    mu = mean - lam * (nu - tau * mean)  # Qi04 (5)",
        "    mu = mean",
        (OF_EP + "test_every_route_leads_to_the_same_fixed_point",),
    ),
    Fault(
        "probit moments without the cavity's variance",
        "EP",
        "inference/known_sites/moments.py",
        "scale = sqrt(noise + slope * slope * v)",
        "scale = sqrt(noise + v)",
        ("tests/inference/known_sites/test_known.py::test_tilted_moments_at_any_width",),
    ),
    Fault(
        "a tie counts as no error",
        "EP",
        EP,
        "+ 0.5 * ties.sum(axis=-1)",
        "+ 0.0 * ties.sum(axis=-1)",
        (OF_EP + "test_error_estimates_in_the_log_domain",),
        "Qi04 (12): the step at zero is not defined there",
    ),
    Fault(
        "leave-one-out errors outside the log domain",
        "EP",
        EP,
        "    log_terms = log_ndtr(-PRESCALE * z)",
        "    log_terms = np.log(np.maximum(ndtr(-PRESCALE * z), 1e-300))",
        (OF_EP + "test_error_estimates_in_the_log_domain",),
        "Qi04 (13) as printed: it underflows",
    ),
    Fault(
        "cavities are taken with the sites in",
        "leave-one-out",
        EP,
        '        "log_loo_probability": rows.log_z,',
        '        "log_loo_probability": rows.log_z + 0.5 * np.log1p(tau * rows.cavity_variance),',
        (OF_EP + "test_free_leave_one_out_is_near_the_real_one",),
    ),
    Fault(
        "EP's gradient forgets the variance of the weights",
        "gradients",
        EP,
        "0.5 / model.precision - 0.5 * (deviation**2 + posterior.marginal_variance)",
        "0.5 / model.precision - 0.5 * deviation**2",
        (OF_EP + "test_the_gradient_in_a_precision_is_the_papers",),
    ),
    Fault(
        "EP's gradient forgets the spread of the rows",
        "gradients",
        EP,
        "        projection -= fit.site_precision[:, None] * posterior.cross_covariance\n",
        "",
        (OF_EP + "test_gradient_of_the_evidence",),
    ),
    Fault(
        "the correlation has the wrong sign in EP's correction",
        "EP",
        "inference/ep/correction.py",
        "pairs += 0.5 * a * (power @ a)  # OPW13",
        "pairs += 0.5 * a * (np.abs(power) @ a)",
        ("tests/inference/ep/test_correction.py::test_two_rows_to_all_orders_are_exact",),
    ),
    Fault(
        "Laplace's determinant counts once, not half",
        "Laplace",
        LAPLACE,
        "log_evidence=state.psi - posterior.half_log_det,  # RW06 (3.32)",
        "log_evidence=state.psi - 2.0 * posterior.half_log_det,",
        (OF_LAPLACE + "test_gaussian_sites_are_exact",),
    ),
    Fault(
        "Laplace is expanded with the sign of the curvature lost",
        "Laplace",
        "inference/sites/likelihoods.py",
        "third = self.sign * product * np.tanh(z / 2)",
        "third = product * np.tanh(z / 2)",
        (
            "tests/inference/sites/test_sites.py::"
            "test_each_derivative_is_the_slope_of_the_one_before",
        ),
    ),
    Fault(
        "Laplace's gradient forgets that the mode moves",
        "gradients",
        LAPLACE,
        "0.5 / model.precision - 0.5 * second_moment - moved * deviation",
        "0.5 / model.precision - 0.5 * second_moment",
        (OF_LAPLACE + "test_evidence_gradient_is_the_derivative",),
        'Tip04: alpha "updated as before" in classification',
    ),
    Fault(
        "the third derivative pulls the wrong way",
        "gradients",
        LAPLACE,
        "return np.asarray(0.5 * posterior.eta_variance * site.third)",
        "return np.asarray(-0.5 * posterior.eta_variance * site.third)",
        (OF_LAPLACE + "test_shift_of_the_means_against_quadrature",),
    ),
    Fault(
        "what is definite is called indefinite where it rounds",
        "Laplace",
        POSTERIOR,
        "    if root is None:\n        raise",
        "    if root is None or len(matrix):\n        raise",
        (OF_POSTERIOR + "test_what_is_definite_is_factorised_however_it_rounds",),
        "a defect of 0.1.0: the verdict hung on the kernel of the BLAS",
    ),
    Fault(
        "function space keeps the prior's covariance",
        "Laplace",
        POSTERIOR,
        "return prior_part - (projection @ self._half_cross.T) @ self._half_cross  # RW06 (3.27)",
        "return prior_part",
        (OF_POSTERIOR + "test_posterior_equals_plain_inversion",),
    ),
    Fault(
        "draws without the noise of Matheron's rule",
        "Laplace",
        POSTERIOR,
        "surprise = self._scale * (before @ self.prior.projection.T) + noise",
        "surprise = self._scale * (before @ self.prior.projection.T) + 0.0 * noise",
        (OF_POSTERIOR + "test_draws_have_the_right_moments",),
    ),
    Fault(
        "the determinant lacks the sum of E over classes",
        "Laplace",
        "inference/softmax/model.py",
        "        self.half_log_det += float(np.log(self.total.diagonal()).sum())\n",
        "",
        ("tests/inference/softmax/test_softmax_laplace.py::test_the_two_spaces_agree",),
        "RW06, algorithm 3.3, as printed",
    ),
    Fault(
        "sites at the start are taken at every θ",
        "Laplace",
        "inference/graph/latent.py",
        "if first is not None and not self.cut_depends:",
        "if first is not None:",
        ("tests/inference/hyper/test_hyper.py::test_gradient_of_the_evidence_equals_differences",),
    ),
    Fault(
        "a parabola found again is not looked at far out",
        "Laplace",
        "inference/known_sites/recognition.py",
        "if not (_same(sites, view).all() and _same(sites, Values(far, based(far))).all()):",
        "if not _same(sites, view).all():",
        (OF_RECOGNITION + "test_a_hint_of_parabolas_does_not_make_one",),
    ),
    Fault(
        "every block of draws begins with the first",
        "Laplace",
        "inference/pymc_models/at_draws.py",
        "[values[start : start + size] for values in ordered]",
        "[values[: min(size, count - start)] for values in ordered]",
        ("tests/inference/pymc_models/test_at_draws.py::test_log_likelihoods_are_those_of_pymc",),
    ),
)
