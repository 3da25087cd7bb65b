from .ard import ard_classification as ard_classification
from .ard import ard_regression as ard_regression
from .mixture import rbf_mixture as rbf_mixture
from .rvm import rvm_classification as rvm_classification
from .rvm import rvm_regression as rvm_regression
from .sample_feature import sample_feature_classification as sample_feature_classification
from .sample_feature import sample_feature_regression as sample_feature_regression
from .subset import subset_classification as subset_classification
from .subset import subset_regression as subset_regression
from .svm import trigonometric_svm as trigonometric_svm

__all__: list[str]
