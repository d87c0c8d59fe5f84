"""Other forms of a model: an estimator of scikit-learn, a folder that travels without its graph."""
