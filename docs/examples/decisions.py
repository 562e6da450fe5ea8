"""Choose the level of a station for the morning, and the bikes to move."""

# [start:station]
import numpy as np
from unmet.decisions import expected_lost, target_level

rentals = [0.2] * 6 + [1, 4, 8, 5, 2, 2]  # wanted per hour, midnight to noon
returns = [0.2] * 6 + [0.5, 1, 2, 2, 2, 2]
lost = expected_lost(rentals, returns, capacity=20)  # for every start level, 0 to 20
target = target_level(lost.cost(), tolerance=0.5)
print(f"start with {target.level} bikes ({target.low} to {target.high} is as good): {target.cost:.2f} riders lost")
print(f"start with 5: {lost.rentals[5]:.1f} find no bike, {lost.returns[5]:.1f} no dock")
# [end:station]

# [start:draws]
from unmet.decisions import with_day_factor

generator = np.random.default_rng(0)
many = with_day_factor(np.tile(rentals, (500, 1)), 0.09, generator)  # good and bad days
mean_cost = expected_lost(many, np.tile(returns, (500, 1)), capacity=20).cost().mean(axis=0)
print(f"at the target: {lost.cost().min():.2f} riders lost at mean rates, {mean_cost.min():.2f} on the mean of days")
# [end:draws]

# [start:fleet]
from unmet.decisions import rebalance

quiet = expected_lost([0.5] * 12, [0.5] * 12, capacity=20)
moves = rebalance([lost.cost(), quiet.cost()], levels=[5, 15], most_moves=6)
gain = sum(move.gain for move in moves)
print(f"{len(moves)} bikes from the quiet station to the busy one save {gain:.1f} riders")
# [end:fleet]
