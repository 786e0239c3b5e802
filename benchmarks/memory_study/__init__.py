"""The study from which the defaults of `FederatedKMeans` follow: rules × data × clients a round × rounds."""
