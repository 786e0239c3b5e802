"""The values that the paper reports, to print beside ours.

Source: Holzer, Jacob & Kavane, "Dynamically Weighted Federated k-Means", the tables of score,
accuracy and v-measure: 100 clients that all take part, 100 runs.
"""

from __future__ import annotations

# Runs behind the means. The captions say 100 for all, but accuracy and v-measure must be those of the 50
# runs with the lowest score, as in the figures of the paper: over all runs, k-means on the synthetic data
# could not have a standard deviation of 0.0066 in the score and of 0.0004 in the accuracy.
PAPER_RUNS = {"score": 100, "accuracy": 50, "v_measure": 50}
# The paper prints four decimals, so a value may be off by half of the last one.
PAPER_ROUNDING = 0.5e-4


# Distribution and algorithm, then mean, best and standard deviation of score, accuracy and v-measure.
_TEXTS = {
    "synthetic": """
iid       k-means   0.0780   0.0743   0.0066  0.9093  0.9099  0.0004  0.8299  0.8309  0.0005
iid       ewf       0.0743   0.0743   0.0000  0.9091  0.9098  0.0003  0.8297  0.8310  0.0003
iid       dwf       0.0743   0.0743   0.0000  0.9091  0.9100  0.0003  0.8297  0.8312  0.0003
iid       kfed      0.0759   0.0746   0.0039  0.9077  0.9108  0.0015  0.8301  0.8327  0.0011
half-iid  k-means   0.0780   0.0743   0.0066  0.9093  0.9099  0.0004  0.8299  0.8309  0.0005
half-iid  ewf       0.0744   0.0744   0.0000  0.9093  0.9102  0.0003  0.8300  0.8317  0.0004
half-iid  dwf       0.0744   0.0743   0.0000  0.9093  0.9103  0.0003  0.8299  0.8311  0.0004
half-iid  kfed      0.0786   0.0746   0.0066  0.9083  0.9108  0.0019  0.8307  0.8330  0.0012
non-iid   k-means   0.0780   0.0743   0.0066  0.9093  0.9099  0.0004  0.8299  0.8309  0.0005
non-iid   ewf       0.0772   0.0745   0.0020  0.9049  0.9104  0.0042  0.8280  0.8322  0.0027
non-iid   dwf       0.0744   0.0743   0.0000  0.9093  0.9099  0.0003  0.8298  0.8309  0.0004
non-iid   kfed      0.0817   0.0755   0.0071  0.9062  0.9091  0.0023  0.8269  0.8303  0.0019
""",
    "mnist": """
iid       k-means  34.6892  34.5299   0.0987  0.7150  0.7383  0.0104  0.5498  0.5596  0.0059
iid       ewf      34.7191  34.5549   0.1094  0.7144  0.7288  0.0061  0.5509  0.5605  0.0042
iid       dwf      34.6930  34.5326   0.1113  0.7149  0.7329  0.0061  0.5517  0.5627  0.0038
iid       kfed     35.7251  35.3449   0.2272  0.6789  0.7067  0.0130  0.5174  0.5403  0.0068
half-iid  k-means  34.6892  34.5299   0.0987  0.7150  0.7383  0.0104  0.5498  0.5596  0.0059
half-iid  ewf      34.9325  34.6773   0.1695  0.7012  0.7157  0.0081  0.5392  0.5508  0.0056
half-iid  dwf      34.7729  34.5480   0.1747  0.7124  0.7271  0.0063  0.5496  0.5592  0.0040
half-iid  kfed     35.7704  35.2623   0.2733  0.6692  0.7182  0.0156  0.5130  0.5468  0.0090
non-iid   k-means  34.6892  34.5299   0.0987  0.7150  0.7383  0.0104  0.5498  0.5596  0.0059
non-iid   ewf      38.6028  37.8510   0.3471  0.5983  0.6308  0.0162  0.4338  0.4685  0.0136
non-iid   dwf      34.7879  34.6328   0.0870  0.7037  0.7332  0.0092  0.5410  0.5519  0.0052
non-iid   kfed     35.4158  35.0402   0.2038  0.6861  0.7122  0.0124  0.5297  0.5524  0.0083
""",
    "femnist": """
iid       k-means   8.3140   8.2876   0.0111  0.5695  0.5814  0.0058  0.4580  0.4680  0.0034
iid       ewf       8.4945   8.4694   0.0131  0.5669  0.5763  0.0053  0.4668  0.4732  0.0032
iid       dwf       8.3624   8.3323   0.0140  0.5769  0.5935  0.0069  0.4697  0.4787  0.0034
iid       kfed      8.5574   8.4907   0.0258  0.5479  0.5645  0.0085  0.4548  0.4658  0.0052
half-iid  k-means   8.3871   8.3691   0.0101  0.4667  0.4848  0.0066  0.4292  0.4389  0.0039
half-iid  ewf       8.4991   8.4736   0.0125  0.4589  0.4774  0.0075  0.4306  0.4406  0.0044
half-iid  dwf       8.4309   8.4046   0.0121  0.4605  0.4747  0.0066  0.4314  0.4424  0.0036
half-iid  kfed      8.6519   8.5996   0.0245  0.4312  0.4504  0.0074  0.4107  0.4201  0.0040
non-iid   k-means   7.7661   7.7458   0.0075  0.4906  0.5029  0.0056  0.4632  0.4691  0.0031
non-iid   ewf       7.9266   7.8939   0.0148  0.4823  0.4937  0.0060  0.4657  0.4720  0.0034
non-iid   dwf       7.8330   7.8070   0.0113  0.4874  0.5024  0.0078  0.4667  0.4745  0.0035
non-iid   kfed      8.1102   8.0470   0.0288  0.4143  0.4389  0.0110  0.4317  0.4440  0.0053
""",
}


PAPER_DATA = tuple(_TEXTS)
# Mean, best (least score, largest of the others) and standard deviation over the runs of the paper, by data
# set, distribution, name of the algorithm in the registry, and metric. FKM is not in the paper.
PAPER_VALUES: dict[tuple[str, ...], tuple[float, ...]] = {
    (data, *line.split()[:2], metric): tuple(map(float, line.split()[first : first + 3]))
    for data, text in _TEXTS.items()
    for line in text.strip().splitlines()
    for metric, first in (("score", 2), ("accuracy", 5), ("v_measure", 8))
}
NO_VALUE = (float("nan"),) * 3
