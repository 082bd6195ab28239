import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Committed records of topics, a line of JSON each: {@code Drain BOOTSTRAP_SERVERS TOPIC…}. For Kafka's clients from 2.1
 * on.
 */
public class Drain {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        StringBuilder lines = new StringBuilder();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            List<TopicPartition> places = new ArrayList<>();
            for (int number = 1; number < arguments.length; number++) {
                for (PartitionInfo each : consumer.partitionsFor(arguments[number])) {
                    places.add(new TopicPartition(each.topic(), each.partition()));
                }
            }
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    lines.append(line(record)).append('\n');
                }
            }
        }
        byte[] output = lines.toString().getBytes(StandardCharsets.UTF_8);
        System.out.write(output, 0, output.length);
        System.out.flush();
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add("[" + quoted(header.key().getBytes(StandardCharsets.UTF_8)) + "," + quoted(header.value()) + "]");
        }
        return "{\"topic\":\"" + record.topic() + "\",\"key\":" + quoted(record.key()) + ",\"value\":"
            + quoted(record.value()) + ",\"headers\":[" + String.join(",", headers) + "]}";
    }

    /** Texts of the test need no escapes. */
    private static String quoted(byte[] text) {
        return text == null ? "null" : '"' + new String(text, StandardCharsets.UTF_8) + '"';
    }
}
