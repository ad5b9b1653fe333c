"""BLoad for ``torch``: sampler, data set, collation, and what models need to keep the sequences of a block apart."""
