-- min_reader: 1
-- Visitors who are logged in to the viewer. `key` is the hash of the secret in their cookie, `proof` that of the secret
-- together with the token they showed: without the cookie it says nothing of either.
CREATE TABLE romancy.sessions (key BLOB PRIMARY KEY, proof BLOB NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
