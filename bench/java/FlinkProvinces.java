import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.flink.api.common.restartstrategy.RestartStrategies;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.CheckpointConfig;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.flink.legacy.RocketMQConfig;
import org.apache.rocketmq.flink.legacy.RocketMQSink;
import org.apache.rocketmq.flink.legacy.RocketMQSourceFunction;
import org.apache.rocketmq.flink.legacy.common.config.OffsetResetStrategy;
import org.apache.rocketmq.flink.legacy.common.serialization.KeyValueDeserializationSchema;

/**
 * The provinces of addresses by rocketmq-flink, as a peer of `python -m bench.peers`.
 *
 * <p>FlinkProvinces NAME_SERVER SOURCE SINK GROUP flush|async CHECKPOINTS [RESTORE]. It runs until it is killed.
 */
public class FlinkProvinces {
    public static class Bodies implements KeyValueDeserializationSchema<String> {
        @Override
        public String deserializeKeyAndValue(byte[] key, byte[] value) {
            return new String(value, StandardCharsets.UTF_8);
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return TypeInformation.of(String.class);
        }
    }

    private static Message province(String topic, String body) {
        JSONObject order = JSON.parseObject(body);
        String address = order.getString("address");
        JSONObject found = new JSONObject();
        found.put("id", order.get("id"));
        found.put("province", address.substring(0, address.indexOf(' ')));
        return new Message(topic, "", order.getString("id"), found.toJSONString().getBytes(StandardCharsets.UTF_8));
    }

    public static void main(String[] given) throws Exception {
        String sink = given[2];
        Configuration configuration = new Configuration();
        configuration.setString("state.checkpoints.dir", given[5]);
        if (given.length > 6) {
            configuration.setString("execution.savepoint.path", given[6]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        env.enableCheckpointing(1000);
        env.getCheckpointConfig()
                .setExternalizedCheckpointCleanup(CheckpointConfig.ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION);
        env.setRestartStrategy(RestartStrategies.fixedDelayRestart(1000, 1000));
        Properties reading = new Properties();
        reading.setProperty(RocketMQConfig.NAME_SERVER_ADDR, given[0]);
        reading.setProperty(RocketMQConfig.CONSUMER_GROUP, given[3]);
        reading.setProperty(RocketMQConfig.CONSUMER_TOPIC, given[1]);
        Properties writing = new Properties();
        writing.setProperty(RocketMQConfig.NAME_SERVER_ADDR, given[0]);
        writing.setProperty(RocketMQConfig.PRODUCER_GROUP, given[3] + "_producer");
        boolean flushes = given[4].equals("flush");
        env.addSource(new RocketMQSourceFunction<>(new Bodies(), reading).setStartFromGroupOffsets(OffsetResetStrategy.EARLIEST))
                .uid("source")
                .map(body -> province(sink, body))
                .returns(Message.class)
                .addSink(new RocketMQSink(writing).withBatchFlushOnCheckpoint(flushes).withBatchSize(32).withAsync(!flushes))
                .uid("sink");
        env.execute("provinces");
    }
}
