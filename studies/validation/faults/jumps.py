"""Faults of the samplers over subsets, of the mixture, of the steps and of Sampled()."""

from ardvark.studies.validation.faults.fault import Fault

__all__ = ["FAULTS"]

SUBSETS, FACTOR = "inference/subset/kernels.py", "inference/subset/factor.py"
TWO_CLASSES, FITS = "inference/subset/laplace.py", "inference/subset/laplace_fit.py"
OF_SUBSETS = "tests/inference/subset/test_collapsed.py::"
OF_TWO_CLASSES = "tests/inference/subset/test_subset_laplace.py::"
MIXTURE, OF_MIXTURE = (
    "inference/mixture/kernels.py",
    "tests/inference/mixture/test_mixture_kernels.py::",
)
OF_MOVES = OF_MIXTURE + "test_ratio_of_every_move_is_that_of_the_graph_and_moves_can_be_undone"
LABELS, LABEL_JUMPS = (
    "inference/mixture/conditional/density.py",
    "inference/mixture/conditional/jumps.py",
)
OF_LABELS = "tests/inference/mixture/test_mixture_conditional.py::"
SAMPLED = "inference/sampled/kernels.py"
OF_SAMPLED = "tests/inference/sampled/test_sampled.py::"
STEP, OF_STEP = "inference/steps/subset.py", "tests/inference/steps/test_step_subset.py::"

FAULTS = (
    Fault(
        "a birth without the prior of the sizes",
        "reversible jump, linear",
        SUBSETS,
        "log_ratio = log_prior[size + 1] - log_prior[size] + gain(alpha[j], s[j], q[j])\n"
        "            if",
        "log_ratio = gain(alpha[j], s[j], q[j])\n            if",
        (OF_SUBSETS + "test_all_256_subsets_against_enumeration",),
    ),
    Fault(
        "a weight's own prior is forgotten in its gain",
        "reversible jump, linear",
        FACTOR,
        "return 0.5 * (log(precision / s) + q * q / s)",
        "return 0.5 * (log(1.0 / s) + q * q / s)",
        (OF_SUBSETS + "test_gains_are_differences_of_dense_evidences",),
    ),
    Fault(
        "an exchange back is as likely by choice, not by probability",
        "reversible jump, linear",
        SUBSETS,
        "            gains[j] = gain(alpha[j], s[j] + x * x, q[j] + x * along)",
        "            gains[j] = gain(alpha[j], s[j], q[j])",
        (OF_SUBSETS + "test_an_exchange_back_has_the_opposite_ratio",),
    ),
    Fault(
        "the noise without the Jacobian of its logarithm",
        "reversible jump, linear",
        SUBSETS,
        "return (1.0 - n_rows) * x - 0.5 * residual / square",
        "return (0.0 - n_rows) * x - 0.5 * residual / square",
        (OF_SUBSETS + "test_slice_sampling_of_sigma",),
    ),
    Fault(
        "truncated normals by the density of the tail's start",
        "reversible jump, linear",
        SUBSETS,
        "if rng.random() <= exp(-0.5 * (x - rate) ** 2):",
        "if rng.random() <= 1.0:",
        (OF_SUBSETS + "test_truncated_normals",),
    ),
    Fault(
        "the precision of an excluded input as if it had a weight",
        "reversible jump, linear",
        SUBSETS,
        "alpha[j] = rng.standard_gamma(a) / b if place[j] < 0 else alpha[j]",
        "alpha[j] = rng.standard_gamma(a + 0.5) / b if place[j] < 0 else alpha[j]",
        (OF_SUBSETS + "test_without_data_the_chain_gives_the_prior",),
    ),
    Fault(
        "a jump between subsets without the density of its proposal",
        "reversible jump, linear",
        TWO_CLASSES,
        "new_omega = new_joint - log_proposal(k, trial, fit.mode, fit.L) - value",
        "new_omega = new_joint - value",
        (OF_TWO_CLASSES + "test_two_inputs_against_quadrature",),
    ),
    Fault(
        "a Student-t proposal of another width than its density",
        "reversible jump, linear",
        FITS,
        "return total - 0.5 * (TAILS + k) * log1p(square / TAILS)",
        "return total - 0.5 * (TAILS + k) * log1p(2.0 * square / TAILS)",
        (OF_TWO_CLASSES + "test_the_proposal_is_a_student_t",),
    ),
    Fault(
        "a replacement chooses without counting the way back",
        "reversible jump, linear",
        "inference/subset/replace.py",
        "    log_r += log_choice(j, i, place, near)\n",
        "",
        (
            "tests/inference/subset/test_replace.py::test_replacements_alone_give_the_posterior_within_a_size",
        ),
    ),
    Fault(
        "a subset's probability has the error of independent draws",
        "reversible jump, linear",
        "inference/tally.py",
        "        size = ess_of_labels(which.reshape(chains, sweeps), len(first))\n",
        "        ess_of_labels(which.reshape(chains, sweeps), len(first))\n",
        (
            "tests/inference/test_tally.py::test_the_error_is_that_of_a_chain_with_known_correlation",
        ),
        "a defect of 0.1.0: two Monte Carlo errors under one name",
    ),
    Fault(
        "inputs outside the subset have no density",
        "reversible jump, mixture",
        MIXTURE,
        "        ratio += log_weight(p, s, new) - p.power * p.log_p0[new]",
        "        ratio += log_weight(p, s, new)",
        (OF_MOVES,),
        "Syk00 (5) as printed: densities of different data are compared",
    ),
    Fault(
        "the binomial counts twice in a birth",
        "reversible jump, mixture",
        MIXTURE,
        "return float(p.log_prior[size + 1] - p.log_prior[size] + odds)",
        "return float(p.log_prior[size + 1] - p.log_prior[size] + 2.0 * odds)",
        (OF_MOVES,),
        "Syk00: p(I) read as the prior of a size",
    ),
    Fault(
        "an exchange has a factor of choice",
        "reversible jump, mixture",
        MIXTURE,
        "        return float(p.log_prior[size - 1] - p.log_prior[size] - odds)\n    return 0.0",
        "        return float(p.log_prior[size - 1] - p.log_prior[size] - odds)\n"
        "    return float(math.log(n_inputs - size) - math.log(float(size)))",
        (OF_MOVES,),
        "Syk00 (6) as printed",
    ),
    Fault(
        "the prior of beta is missing from a jump",
        "reversible jump, mixture",
        MIXTURE,
        "total = p.log_p_beta[j] + p.g * log_beta - p.h[j] * beta  # densities of log β, not β",
        "total = 0.0",
        (OF_MOVES,),
        "Syk00 (5) as printed: no prior of beta",
    ),
    Fault(
        "a variance for a precision in the kernels' density",
        "reversible jump, mixture",
        MIXTURE,
        "power * 0.5 * math.log(tau[k]), power * 0.5 * tau[k], mean[k]",
        "-power * 0.5 * math.log(tau[k]), power * 0.5 / tau[k], mean[k]",
        (OF_MOVES,),
        "Syk00 (5): sigma stands for a precision there",
    ),
    Fault(
        "the kernel of a row is drawn given its old class",
        "reversible jump, mixture",
        MIXTURE,
        "            s.c[n] = pick(rng, by_class)  # collapsed over d, so it comes first\n",
        "            before = s.c[n]\n            s.c[n] = pick(rng, by_class)\n"
        "            for k in range(n_kernels):\n                density[k] *= s.w[before, k]\n"
        "            s.d[n] = pick(rng, density)\n            continue\n",
        (OF_MIXTURE + "test_classes_of_unlabelled_rows_are_drawn_with_the_kernel_summed_out",),
        "Syk00 (3): p(c | ...) is collapsed over the allocation",
    ),
    Fault(
        "leaps without the names of the kernels",
        "reversible jump, mixture",
        "inference/mixture/leaps.py",
        "return float(top + math.log(mean) - math.lgamma(n_kernels + 1.0))",
        "return float(top + math.log(mean))",
        (OF_MIXTURE + "test_a_library_is_a_density_of_allocations_whatever_the_names",),
    ),
    Fault(
        "the ratio P(t | x) with the Gibbs updates of the joint",
        "reversible jump, conditional",
        LABEL_JUMPS,
        "        ratio += log_v(p, new, work.other, born)\n",
        "        ratio += 0.0 * log_v(p, new, work.other, born)\n",
        (OF_LABELS + "test_ratio_of_a_jump_is_that_of_the_graph_and_the_way_back_undoes_it",),
        "Syk00, its chain as it probably was: no joint target",
    ),
    Fault(
        "precisions without the Jacobian of their logarithm",
        "reversible jump, conditional",
        LABELS,
        "total += p.shape * q[at + n_kernels + e] - rate - 0.5 * s.mean[j, e] ** 2",
        "total += (p.shape - 1.0) * q[at + n_kernels + e] - rate - 0.5 * s.mean[j, e] ** 2",
        (OF_LABELS + "test_density_is_that_of_the_graph_with_the_jacobians_of_its_coordinates",),
    ),
    Fault(
        "the gradient of a kernel's precision by half",
        "reversible jump, conditional",
        LABELS,
        "out[n_kernels + e] = p.power * 0.5 * (none - s.tau[j, e] * second)",
        "out[n_kernels + e] = p.power * (none - s.tau[j, e] * second)",
        (OF_LABELS + "test_gradient_is_that_of_differences",),
    ),
    Fault(
        "precisions drawn with one weight less",
        "Sampled",
        SAMPLED,
        "alpha[j] = rng.standard_gamma(p.shape[j] + 0.5) / (p.rate[j] + 0.5 * w[j] * w[j])",
        "alpha[j] = rng.standard_gamma(p.shape[j]) / (p.rate[j] + 0.5 * w[j] * w[j])",
        (OF_SAMPLED + "test_geweke",),
    ),
    Fault(
        "a potential on precisions is not seen",
        "Sampled",
        "inference/graph/conjugacy.py",
        "    if potentials & set(terms):\n        return False\n"
        "    return all(first_other_form(term, variable) is None for term in terms.values())",
        "    return True",
        ("tests/inference/graph/test_gamma_form.py::test_an_order_of_precisions_is_kept",),
        "a defect of 0.1.0: a Gamma was told from slopes at three points",
    ),
    Fault(
        "GammaGibbs takes any conditional for a Gamma",
        "steps",
        "inference/steps/gamma.py",
        "        if potentials:\n",
        "        if not potentials and self.name is None:\n",
        ("tests/inference/graph/test_gamma_form.py::test_a_refusal_names_the_potential",),
        "a defect of 0.1.0: a Gamma was told from slopes at three points",
    ),
    Fault(
        "GammaGibbs draws with a shape too large by one",
        "steps",
        "inference/steps/gamma.py",
        "return 1.0 + at_one + rate * np.exp(one), rate",
        "return 2.0 + at_one + rate * np.exp(one), rate",
        ("tests/inference/steps/test_steps.py::test_gamma_gibbs_reads_shape_and_rate_by_number",),
    ),
    Fault(
        "a step's jump without the proposal",
        "steps",
        STEP,
        "log_ratio = new_p - log_p + log_q - new_q",
        "log_ratio = new_p - log_p",
        (OF_STEP + "test_the_step_samples_the_enumerated_posterior",),
    ),
    Fault(
        "a block moves by a slice of another height",
        "steps",
        "inference/sites/moves.py",
        "threshold = height - rng.standard_exponential(chains)  # MAM10 step 2",
        "threshold = height - 0.3 * rng.standard_exponential(chains)",
        ("tests/inference/sites/test_moves.py::test_exact_kernels_keep_the_posterior",),
    ),
)
