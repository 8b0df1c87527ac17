-- Lanes by their key alone, for tracing what somebody names by it.
CREATE INDEX oncegate_lane_of_key ON oncegate_lane (key);
