# One logit GLMM by glmmTMB or lme4: Rscript run_glmm.R package data.csv crossed|one_way
# Prints CPU seconds of the fit, log likelihood, fixed effects and sds of the random ones.
given <- commandArgs(trailingOnly = TRUE)
package <- given[1]
d <- read.csv(given[2])
d$g <- factor(d$g)
formula <- t ~ x0 + x1 + (1 | g)
if (given[3] == "crossed") {
  d$h <- factor(d$h)
  formula <- t ~ x0 + x1 + (1 | g) + (1 | h)
}
suppressWarnings(suppressMessages(library(package, character.only = TRUE)))
before <- proc.time()
if (package == "lme4") {
  fit <- glmer(formula, data = d, family = binomial())
  fixed <- fixef(fit)
  sds <- sapply(VarCorr(fit), function(v) sqrt(v[1, 1]))
} else {
  fit <- glmmTMB(formula, data = d, family = binomial(), se = FALSE)
  fixed <- fixef(fit)$cond
  sds <- sapply(VarCorr(fit)$cond, function(v) sqrt(v[1, 1]))
}
spent <- proc.time() - before
cat(sprintf('{"cpu_seconds": %.3f, "log_likelihood": %.6f, "fixed": [%s], "sds": [%s], "version": "%s %s"}\n',
  spent[1] + spent[2], as.numeric(logLik(fit)), paste(sprintf("%.6f", fixed), collapse = ", "),
  paste(sprintf("%.6f", sds), collapse = ", "), package, packageVersion(package)))
