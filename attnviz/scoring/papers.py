"""Where definitions of scores and roles come from."""

CLARK = "Clark et al. 2019, arXiv:1906.04341"
VOITA = "Voita et al. 2019, arXiv:1905.09418"
OLSSON = "Olsson et al. 2022, arXiv:2209.11895"
XIAO = "Xiao et al. 2023, arXiv:2309.17453"
WANG = "Wang et al. 2022, arXiv:2211.00593"
