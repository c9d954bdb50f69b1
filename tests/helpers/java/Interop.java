import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The official client for the interoperability tests: Interop NAME_SERVER, then a JSON object a line on standard input
 * and one a line on standard output.
 *
 * <pre>
 * {"do":"send", "topic":T, "mode":"single"|"batch"|"by_key", "messages":[...], "compression":"LZ4"|"ZSTD"|"ZLIB"|null}
 * {"do":"consume", "topic":T, "count":N, "filter":"tag expression"|null}
 * {"do":"queues_of_keys", "topic":T, "keys":[...]}
 * </pre>
 */
public final class Interop {
    private static final long CONSUME_NANOS = 60_000_000_000L;
    private static final int COMPRESS_FROM = 4096;

    private final String nameServer;
    private int groups;

    private Interop(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) {
        Interop interop = new Interop(args[0]);
        System.out.println("{\"ready\":\"" + System.getProperty("java.version") + "\"}");
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            JSONObject answer;
            try {
                answer = interop.run(JSON.parseObject(lines.nextLine()));
            } catch (Exception error) {
                error.printStackTrace();
                answer = new JSONObject();
                answer.put("error", error.toString());
            }
            System.out.println(answer.toJSONString());
            System.out.flush();
        }
        System.exit(0);
    }

    private JSONObject run(JSONObject command) throws Exception {
        switch (command.getString("do")) {
            case "send":
                return send(command);
            case "consume":
                return consume(command);
            case "queues_of_keys":
                return queuesOfKeys(command);
            default:
                throw new IllegalArgumentException(command.getString("do"));
        }
    }

    private JSONObject send(JSONObject command) throws Exception {
        String topic = command.getString("topic");
        List<Message> messages = new ArrayList<>();
        JSONArray given = command.getJSONArray("messages");
        for (int i = 0; i < given.size(); i++) {
            messages.add(message(topic, given.getJSONObject(i)));
        }
        DefaultMQProducer producer = new DefaultMQProducer(group());
        producer.setNamesrvAddr(nameServer);
        producer.setCompressMsgBodyOverHowmuch(COMPRESS_FROM);
        if (command.getString("compression") != null) {
            producer.setCompressType(CompressionType.of(command.getString("compression")));
        }
        producer.start();
        try {
            List<SendResult> results = new ArrayList<>();
            if (command.getString("mode").equals("batch")) {
                results.add(producer.send(messages));
            }
            for (Message message : command.getString("mode").equals("batch") ? Collections.<Message>emptyList() : messages) {
                if (command.getString("mode").equals("by_key")) {
                    String key = message.getProperty("__SHARDINGKEY");
                    results.add(producer.send(message, new SelectMessageQueueByHash(), key));
                } else {
                    results.add(producer.send(message));
                }
            }
            JSONArray answers = new JSONArray();
            for (SendResult result : results) {
                JSONObject one = new JSONObject();
                one.put("msgId", result.getMsgId());
                one.put("offsetMsgId", result.getOffsetMsgId());
                one.put("broker", result.getMessageQueue().getBrokerName());
                one.put("queueId", result.getMessageQueue().getQueueId());
                one.put("queueOffset", result.getQueueOffset());
                one.put("status", result.getSendStatus().name());
                answers.add(one);
            }
            JSONObject answer = new JSONObject();
            answer.put("results", answers);
            return answer;
        } finally {
            producer.shutdown();
        }
    }

    private static Message message(String topic, JSONObject given) {
        Message message = new Message(topic, Base64.getDecoder().decode(given.getString("body")));
        if (given.getString("tags") != null) {
            message.setTags(given.getString("tags"));
        }
        if (given.getJSONArray("keys") != null) {
            message.setKeys(given.getJSONArray("keys").toList(String.class));
        }
        if (given.getInteger("flag") != null) {
            message.setFlag(given.getInteger("flag"));
        }
        if (given.getInteger("delayLevel") != null) {
            message.setDelayTimeLevel(given.getInteger("delayLevel"));
        }
        if (given.getString("shardingKey") != null) {
            org.apache.rocketmq.common.message.MessageAccessor.putProperty(
                message, "__SHARDINGKEY", given.getString("shardingKey"));
        }
        JSONObject properties = given.getJSONObject("properties");
        if (properties != null) {
            for (String name : properties.keySet()) {
                message.putUserProperty(name, properties.getString(name));
            }
        }
        return message;
    }

    private JSONObject consume(JSONObject command) throws Exception {
        String topic = command.getString("topic");
        int count = command.getIntValue("count");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group());
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (command.getString("filter") != null) {
            consumer.setSubExpressionForAssign(topic, command.getString("filter"));
        }
        consumer.start();
        try {
            consumer.assign(consumer.fetchMessageQueues(topic));
            JSONArray messages = new JSONArray();
            long begin = System.nanoTime();
            while (messages.size() < count && System.nanoTime() - begin < CONSUME_NANOS) {
                for (MessageExt message : consumer.poll(500)) {
                    messages.add(fields(message));
                }
            }
            JSONObject answer = new JSONObject();
            answer.put("messages", messages);
            return answer;
        } finally {
            consumer.shutdown();
        }
    }

    private static JSONObject fields(MessageExt message) {
        JSONObject fields = new JSONObject();
        fields.put("brokerName", message.getBrokerName());
        fields.put("queueId", message.getQueueId());
        fields.put("storeSize", message.getStoreSize());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("bornHost", address(message.getBornHost()));
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("storeHost", address(message.getStoreHost()));
        fields.put("msgId", message.getMsgId());
        fields.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        fields.put("commitLogOffset", message.getCommitLogOffset());
        fields.put("bodyCRC", message.getBodyCRC());
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fields.put("topic", message.getTopic());
        fields.put("flag", message.getFlag());
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("shardingKey", message.getProperty("__SHARDINGKEY"));
        fields.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        Map<String, String> properties = new HashMap<>(message.getProperties());
        properties.remove("MIN_OFFSET"); // the consumer itself adds these two to what it received
        properties.remove("MAX_OFFSET");
        fields.put("properties", properties);
        fields.put("uniqueId", MessageClientIDSetter.getUniqID(message));
        return fields;
    }

    private static String address(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return internet.getAddress().getHostAddress() + ":" + internet.getPort();
    }

    private JSONObject queuesOfKeys(JSONObject command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group());
        producer.setNamesrvAddr(nameServer);
        producer.start();
        try {
            List<MessageQueue> queues = producer.fetchPublishMessageQueues(command.getString("topic"));
            JSONArray chosen = new JSONArray();
            for (String key : command.getJSONArray("keys").toList(String.class)) {
                MessageQueue queue = new SelectMessageQueueByHash().select(queues, null, key);
                chosen.add(queue.getBrokerName() + "/" + queue.getQueueId());
            }
            JSONObject answer = new JSONObject();
            answer.put("queues", chosen);
            return answer;
        } finally {
            producer.shutdown();
        }
    }

    private String group() {
        return "interop-" + ProcessHandle.current().pid() + "-" + groups++;
    }
}
