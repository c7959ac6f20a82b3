//! A file system in memory that can lose power, for crash tests.
