"""Tables of choices: which algorithm to use for which size, how tables are made, judged and selected from."""
