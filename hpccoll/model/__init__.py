"""The model: what messages and folds cost, fitted; what schedules would then take, confronted with what they took."""
