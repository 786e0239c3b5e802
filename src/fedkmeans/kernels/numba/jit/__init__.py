"""Compiled code: the same labels and sums as the plain version, to the last bit.

How it is both fast and exact: cheap methods with a known error find the nearest centroids (a matrix
product in single precision, a bound by the triangle inequality, the Gram matrix of a client's rows).
Only where the two nearest centroids are closer than this error, the plain formula decides: squares
added one after the other, `nearest.exact_square`. Sums are added in the order of the rows, as in
`fedkmeans.kernels.reference.lloyd`, so that the means are also the same numbers.

Rows always have weights (ones if none were given), except in `scan`, where reading ones takes time.

Names used throughout: n rows, k clusters, m columns; i a client, p a row, j a cluster, f a column.
Arrays by cluster and row have shape (k, n): the innermost loops run over rows, where the processor
computes several at once. Functions write into arrays that they are given and return little.

Compiled code on disk belongs to the content of all files in this folder (see `..compiling`). So these
files import nothing of the package but `compiling`, and all tuples they are given are defined here.
"""
