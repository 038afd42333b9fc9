//! What Anthropic's server is asked, and how its answers are read.
