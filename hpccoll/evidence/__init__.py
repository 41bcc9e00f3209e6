"""What the libraries' own logs say of what they ran: a row is named after evidence, never after what was asked for."""
