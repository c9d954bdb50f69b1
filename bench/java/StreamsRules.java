import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.streams.common.utils.DataTypeUtil;
import org.apache.rocketmq.streams.filter.FilterComponent;
import org.apache.rocketmq.streams.filter.builder.ExpressionBuilder;
import org.apache.rocketmq.streams.filter.operator.Rule;

/**
 * The rules of RocketMQ Streams 1.0.1-preview over a file of events, as a peer of `python -m bench.rules`.
 *
 * <p>StreamsRules RULES EVENTS: a rule is a line of id, tab and expression. It answers lines: `matches N` with the ids of the
 * rules that each of the first N events matches, `run` with the microseconds of CPU an event, decoding counted.
 */
public class StreamsRules {
    private record Named(String id, Rule rule) {}

    private static List<String> matched(List<Named> rules, String body) {
        JSONObject event = JSON.parseObject(body);
        List<String> found = new ArrayList<>();
        for (Named each : rules) {
            if (each.rule().execute(event)) {
                found.add(each.id());
            }
        }
        return found;
    }

    public static void main(String[] given) throws Exception {
        // It looks into the classes of Java by reflection, which Java 17 refuses: then no function would be registered.
        Field types = DataTypeUtil.class.getDeclaredField("dataTypes");
        types.setAccessible(true);
        ((List<?>) types.get(null)).removeIf(each -> each.getClass().getSimpleName().equals("JavaBeanDataType"));
        FilterComponent.getInstance();
        List<Named> rules = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(given[0]))) {
            int tab = line.indexOf('\t');
            rules.add(new Named(line.substring(0, tab), ExpressionBuilder.createRule("bench", line.substring(0, tab), line.substring(tab + 1))));
        }
        List<String> events = Files.readAllLines(Path.of(given[1]));
        System.out.println("{\"rules\": " + rules.size() + "}");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var threads = ManagementFactory.getThreadMXBean();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject answer = new JSONObject();
            if (line.startsWith("matches ")) {
                List<List<String>> found = new ArrayList<>();
                for (String body : events.subList(0, Integer.parseInt(line.substring(8)))) {
                    found.add(matched(rules, body));
                }
                answer.put("matches", found);
            } else {
                long begun = threads.getCurrentThreadCpuTime();
                int hits = 0;
                for (String body : events) {
                    hits += matched(rules, body).size();
                }
                answer.put("us", (threads.getCurrentThreadCpuTime() - begun) / 1e3 / events.size());
                answer.put("hits", hits);
            }
            System.out.println(answer.toJSONString());
        }
    }
}
