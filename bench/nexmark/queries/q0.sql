-- Every bid, as it is: the cost of reading and writing.
CREATE TABLE q0 (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING)
WITH ('topic' = 'nexmark-q0');

INSERT INTO q0 SELECT auction, bidder, price, `dateTime`, extra FROM bid;
