-- min_reader: 9
-- What travels with an instance besides its input, such as the trace it belongs to: {name: value} as JSON. Only instances
-- that have any have a row. An older library that removes an instance leaves its row behind; a new one replaces it.
CREATE TABLE headers (instance text COLLATE "C" PRIMARY KEY, headers text NOT NULL);
