"""The experiments of the papers: data set, split, model, method, published figure."""
