-- Every bid, its price in euros instead of dollars.
CREATE TABLE q1 (auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), `dateTime` TIMESTAMP(3), extra STRING)
WITH ('topic' = 'nexmark-q1');

INSERT INTO q1 SELECT auction, bidder, 0.908 * price, `dateTime`, extra FROM bid;
