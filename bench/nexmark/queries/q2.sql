-- Bids on some auctions.
CREATE TABLE q2 (auction BIGINT, price BIGINT) WITH ('topic' = 'nexmark-q2');

INSERT INTO q2 SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
