"""``hpccoll train`` on ranks: training steps, whose collectives are prepared cases."""
