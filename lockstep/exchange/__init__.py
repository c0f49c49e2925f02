"""How vectors are laid out (`flat`), in which order they are added (`tree`), and how they travel (`group`)."""
