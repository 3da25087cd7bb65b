from .by_models import bridge as bridge
from .by_models import conditional_posterior as conditional_posterior
from .by_models import path_errors as path_errors
from .calibration.checks import sbc_summary as sbc_summary
from .calibration.scores import scores as scores
from .compare.evidence import bayes_factor as bayes_factor
from .compare.evidence import compare_evidence as compare_evidence
from .compare.taddaa import taddaa as taddaa
from .relevance.compare import compare_relevance as compare_relevance
from .relevance.discovery import discoveries as discoveries
from .relevance.discovery import selected as selected
from .relevance.groups import correlated_groups as correlated_groups
from .relevance.groups import group_relevance as group_relevance
from .relevance.projection import project as project
from .relevance.ranks import rank_agreement as rank_agreement
from .relevance.stability import stability as stability
from .relevance.subset_checks import subset_diagnostics as subset_diagnostics
from .relevance.subsets import chosen_subsets as chosen_subsets
from .relevance.subsets import credible_sets as credible_sets
from .relevance.subsets import joint_inclusion as joint_inclusion
from .relevance.subsets import replacements as replacements
from .relevance.subsets import subset_sizes as subset_sizes

__all__: list[str]
