"""Trees in, judgements out: relevance of features, agreement of methods, trust in a reference."""
