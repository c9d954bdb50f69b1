-- Who sells something of category 10 in Oregon, Idaho or California?
CREATE TABLE q3 (name STRING, city STRING, state STRING, id BIGINT) WITH ('topic' = 'nexmark-q3');

INSERT INTO q3
SELECT p.name, p.city, p.state, a.id
FROM auction AS a JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');
