"""The papers' experiments as data: data set, split, model, method, published figure; and speeds."""
