"""``hpccoll run`` on ranks: cases are prepared, timed, checked and recorded, round by round."""
