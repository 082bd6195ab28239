import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FenceProducersOptions;
import org.apache.kafka.clients.admin.FenceProducersResult;

/**
 * Kafka's own way to fence: bootstrap servers, prefix, count and a limit in milliseconds in, and client properties as
 * name=value; one line "seconds fenced" out.
 */
public class FencePeer {
    public static void main(String[] arguments) {
        List<String> ids = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) ids.add(arguments[1] + number);
        int limit = Integer.parseInt(arguments[3]);
        int fenced = 0;
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("default.api.timeout.ms", limit);
        for (int number = 4; number < arguments.length; number++) {
            String[] property = arguments[number].split("=", 2);
            properties.put(property[0], property[1]);
        }
        try (Admin admin = Admin.create(properties)) {
            long began = System.nanoTime();
            FenceProducersResult result = admin.fenceProducers(ids, new FenceProducersOptions().timeoutMs(limit));
            for (String id : ids) {
                try {
                    result.epochId(id).get();
                    fenced++;
                } catch (InterruptedException | ExecutionException error) {
                    // not in time; the count tells
                }
            }
            System.out.println((System.nanoTime() - began) / 1e9 + " " + fenced);
        }
    }
}
